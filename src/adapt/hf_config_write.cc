// Writing config.json: the fields that transformers 4.57 reads, in the order of the releases' files.
#include <nlohmann/json.hpp>

#include "adapt/hf_config_fields.h"
#include "adapt/hf_config_rope.h"
#include "milepost/adapt/hf_config.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using flavor::DeepSeekV3;
using flavor::Llama3;
using Json = nlohmann::ordered_json;

// The special ids of the tokenizers that the releases use, told by the size of the vocabulary; for any other
// tokenizer they are null, which transformers takes for "none".
struct SpecialIds {
  int64_t vocab_size, bos, eos;
};
constexpr SpecialIds kSpecialIds[] = {
    {128256, 128000, 128001},  // Llama 3
    {102400, 100000, 100001},  // DeepSeek V2
    {129280, 0, 1},            // DeepSeek V3
};

void add_special_ids(int64_t vocab_size, Json* config) {
  Json bos, eos;
  for (const SpecialIds& ids : kSpecialIds) {
    if (ids.vocab_size != vocab_size) continue;
    bos = ids.bos;
    eos = ids.eos;
  }
  (*config)["bos_token_id"] = bos;
  (*config)["eos_token_id"] = eos;
}

Json config_of(const Llama3& dims) {
  Json config;
  config["architectures"] = {"LlamaForCausalLM"};
  config["model_type"] = "llama";
  config["hidden_size"] = dims.dim;
  config["intermediate_size"] = dims.hidden_dim;
  config["num_hidden_layers"] = dims.n_layers;
  config["num_attention_heads"] = dims.n_heads;
  config["num_key_value_heads"] = dims.n_kv_heads;
  config["head_dim"] = dims.head_dim;
  config["mlp_bias"] = false;
  write_hf_rope(dims.rope, std::nullopt, &config);
  return config;
}

Json config_of(const DeepSeekV3& dims) {
  const bool grouped = dims.num_expert_groups > 0;
  Json config;
  config["architectures"] = {"DeepseekV3ForCausalLM"};
  config["model_type"] = "deepseek_v3";
  config["hidden_size"] = dims.dim;
  config["intermediate_size"] = dims.hidden_dim;
  config["moe_intermediate_size"] = dims.moe_hidden_dim;
  config["num_hidden_layers"] = dims.n_layers;
  config["num_nextn_predict_layers"] = dims.num_mtp_layers;
  config["num_attention_heads"] = dims.n_heads;
  config["num_key_value_heads"] = dims.n_heads;
  config["q_lora_rank"] = dims.q_lora_rank == 0 ? Json() : Json(dims.q_lora_rank);
  config["kv_lora_rank"] = dims.kv_lora_rank;
  config["qk_nope_head_dim"] = dims.qk_nope_head_dim;
  config["qk_rope_head_dim"] = dims.qk_rope_head_dim;
  config["v_head_dim"] = dims.v_head_dim;
  config["first_k_dense_replace"] = dims.n_dense_layers;
  config["moe_layer_freq"] = 1;
  config["n_routed_experts"] = dims.num_experts;
  config["n_shared_experts"] = dims.num_shared_experts;
  config["num_experts_per_tok"] = dims.top_k;
  config["scoring_func"] = dims.score_func == DeepSeekV3::Score::kSoftmax ? "softmax" : "sigmoid";
  config["topk_method"] = "noaux_tc";
  config["n_group"] = grouped ? dims.num_expert_groups : 1;
  config["topk_group"] = grouped ? dims.num_limited_groups : 1;
  config["norm_topk_prob"] = dims.route_norm;
  config["routed_scaling_factor"] = dims.route_scale;
  config["rope_interleave"] = true;
  write_hf_rope(dims.rope, dims.mscale, &config);
  return config;
}

Json fp8_quantisation() {
  Json quantisation;
  quantisation["quant_method"] = "fp8";
  quantisation["fmt"] = "e4m3";
  quantisation["activation_scheme"] = "dynamic";
  quantisation["weight_block_size"] = {128, 128};
  return quantisation;
}

// transformers would tie, or make up, an output that was written, or was not.
void set_tensors_there_are(const flavor::Model& model, Json* config) {
  const auto set = [&](const char* field, const Json& value, const Json& absent) {
    if (config->contains(field) || value != absent) (*config)[field] = value;
  };
  std::visit([&](const auto& dims) { set("tie_word_embeddings", dims.tied_embeddings, false); }, model.dims);
  if (const auto* dims = std::get_if<DeepSeekV3>(&model.dims))
    set("num_nextn_predict_layers", dims->num_mtp_layers, 0);
}

std::string text_of(const Json& config) { return config.dump(2) + "\n"; }

}  // namespace

std::string write_hf_config(const flavor::Model& model, DType torch_dtype, bool fp8) {
  Json config = std::visit(
      [](const auto& dims) {
        Json json = config_of(dims);
        json["vocab_size"] = dims.vocab_size;
        add_special_ids(dims.vocab_size, &json);
        json["rms_norm_eps"] = dims.norm_eps;
        json["tie_word_embeddings"] = dims.tied_embeddings;
        return json;
      },
      model.dims);
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["torch_dtype"] = dtype_name(torch_dtype);
  if (fp8) config["quantization_config"] = fp8_quantisation();
  return text_of(config);
}

std::string update_hf_config(std::string_view text, std::string_view path,
                             const std::optional<flavor::Model>& model, DType torch_dtype, bool fp8) {
  try {
    Json config = parse_hf_config(text);
    if (model) set_tensors_there_are(*model, &config);
    const std::string_view name = dtype_name(torch_dtype);
    if (config.contains("dtype")) config["dtype"] = name;
    if (config.contains("torch_dtype") || !config.contains("dtype")) config["torch_dtype"] = name;
    if (fp8) {
      config["quantization_config"] = fp8_quantisation();
    } else {
      config.erase("quantization_config");
    }
    return text_of(config);
  } catch (Error& error) {
    error.set_path(path);
    throw;
  }
}

}  // namespace milepost::adapt
