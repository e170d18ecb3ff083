// Llama 3: spec conversion, section 2.
#include "adapt/tables.h"

namespace milepost::adapt {
namespace {

constexpr KeyBlock kBlocks[] = {
    {"layers.{layer}.", "model.layers.{layer}.", "layer", "n_layers", {}},
};

constexpr KeyRow kRows[] = {
    {"tok_embeddings.weight", "model.embed_tokens.weight", "vocab_size, dim"},
    {.native = "{block}attention.qkv_linear.wq.weight",
     .hf = "{block}self_attn.q_proj.weight",
     .shape = "n_heads * head_dim, dim",
     .kind = KeyKind::kRopeRows,
     .count = "n_heads",
     .fp8 = true},
    {.native = "{block}attention.qkv_linear.wk.weight",
     .hf = "{block}self_attn.k_proj.weight",
     .shape = "n_kv_heads * head_dim, dim",
     .kind = KeyKind::kRopeRows,
     .count = "n_kv_heads",
     .fp8 = true},
    {.native = "{block}attention.qkv_linear.wv.weight",
     .hf = "{block}self_attn.v_proj.weight",
     .shape = "n_kv_heads * head_dim, dim",
     .fp8 = true},
    {.native = "{block}attention.wo.weight",
     .hf = "{block}self_attn.o_proj.weight",
     .shape = "dim, n_heads * head_dim",
     .fp8 = true},
    {.native = "{block}feed_forward.w1.weight",
     .hf = "{block}mlp.gate_proj.weight",
     .shape = "hidden_dim, dim",
     .fp8 = true},
    {.native = "{block}feed_forward.w2.weight",
     .hf = "{block}mlp.down_proj.weight",
     .shape = "dim, hidden_dim",
     .fp8 = true},
    {.native = "{block}feed_forward.w3.weight",
     .hf = "{block}mlp.up_proj.weight",
     .shape = "hidden_dim, dim",
     .fp8 = true},
    {"{block}attention_norm.weight", "{block}input_layernorm.weight", "dim"},
    {"{block}ffn_norm.weight", "{block}post_attention_layernorm.weight", "dim"},
    {.native = "",
     .hf = "{block}self_attn.rotary_emb.inv_freq",
     .shape = "",
     .kind = KeyKind::kOnlyHf,
     .note = "computed from the configuration"},
    {"norm.weight", "model.norm.weight", "dim"},
    {.native = "lm_head.weight",
     .hf = "lm_head.weight",
     .shape = "vocab_size, dim",
     .absent = "model.embed_tokens.weight",
     .absent_when = "tied_embeddings",
     .export_absent = true,
     .note = "tied to the embeddings"},
};

}  // namespace

constinit const KeyTable kLlama3Keys = {"llama3", kBlocks, kRows};

}  // namespace milepost::adapt
