// Reading config.json. Where a field is absent, transformers' class for the model_type has the default.
#include "milepost/adapt/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "adapt/hf_config_fields.h"
#include "adapt/hf_config_rope.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using flavor::DeepSeekV3;
using flavor::Llama3;
using flavor::Model;

// Far above any model; they keep a forged file from asking for plans that no memory holds.
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxVocab = int64_t{1} << 28;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxExpertsOfAllLayers = 1 << 20;
constexpr int64_t kMaxMtpLayers = 64;
constexpr int64_t kMaxBlock = 1 << 16;
constexpr int64_t kMaxParameters = int64_t{1} << 56;

void demand_no(const HfConfigFields& config, std::string_view flag, std::string_view what) {
  if (!config.flag(flag).value_or(false)) return;
  config.refuse(ErrorCode::kUnsupported, flag, fmt::format("the models here have no {}", what));
}

void demand_common_settings(const HfConfigFields& config) {
  demand_no(config, "attention_bias", "biases in attention");
  demand_no(config, "mlp_bias", "biases in feed-forward layers");
  const std::string activation = config.text("hidden_act").value_or("silu");
  if (activation != "silu") {
    config.refuse(ErrorCode::kUnsupported, "hidden_act",
                  fmt::format("'{}'; the models here have silu", printable(activation, 40)));
  }
}

Llama3 read_llama(const HfConfigFields& config) {
  Llama3 dims;
  dims.dim = config.required_integer("hidden_size", 1, kMaxWidth);
  dims.n_layers = config.required_integer("num_hidden_layers", 1, kMaxLayers);
  dims.n_heads = config.required_integer("num_attention_heads", 1, kMaxWidth);
  dims.n_kv_heads = config.integer("num_key_value_heads", 1, dims.n_heads).value_or(dims.n_heads);
  if (dims.n_heads % dims.n_kv_heads != 0) {
    config.refuse(ErrorCode::kOutOfBounds, "num_key_value_heads",
                  fmt::format("{} does not divide num_attention_heads, {}", dims.n_kv_heads, dims.n_heads));
  }
  const auto head_dim = config.integer("head_dim", 1, kMaxWidth);
  if (!head_dim && dims.dim % dims.n_heads != 0) {
    config.refuse(ErrorCode::kMissingKey, "head_dim",
                  "the field is missing, and num_attention_heads does not divide hidden_size");
  }
  dims.head_dim = head_dim ? *head_dim : dims.dim / dims.n_heads;
  if (dims.head_dim % 2 != 0) {
    config.refuse(ErrorCode::kOutOfBounds, "head_dim",
                  fmt::format("{}; RoPE turns pairs of elements", dims.head_dim));
  }
  dims.hidden_dim = config.required_integer("intermediate_size", 1, kMaxWidth);
  dims.vocab_size = config.required_integer("vocab_size", 1, kMaxVocab);
  dims.tied_embeddings = config.flag("tie_word_embeddings").value_or(false);
  dims.norm_eps = config.number("rms_norm_eps", 0, 1).value_or(1e-6);
  double mscale = 1;  // nothing that llama has
  dims.rope = read_hf_rope(config, 2048, &mscale);
  return dims;
}

void read_attention(const HfConfigFields& config, DeepSeekV3* dims) {
  dims->n_heads = config.required_integer("num_attention_heads", 1, kMaxWidth);
  const auto kv_heads = config.integer("num_key_value_heads", 1, kMaxWidth);
  if (kv_heads && *kv_heads != dims->n_heads) {
    config.refuse(ErrorCode::kUnsupported, "num_key_value_heads",
                  fmt::format("{}; every head of num_attention_heads, {}, has its own key and value",
                              *kv_heads, dims->n_heads));
  }
  // Absent means 1536 to transformers' class, but is more likely a mistake than that rank.
  if (!config.contains("q_lora_rank")) {
    config.refuse(ErrorCode::kMissingKey, "q_lora_rank", "the field is missing",
                  "add it, null for a query that is projected at once");
  }
  dims->q_lora_rank = config.integer("q_lora_rank", 0, kMaxWidth).value_or(0);
  dims->kv_lora_rank = config.required_integer("kv_lora_rank", 1, kMaxWidth);
  dims->qk_nope_head_dim = config.required_integer("qk_nope_head_dim", 1, kMaxWidth);
  dims->qk_rope_head_dim = config.required_integer("qk_rope_head_dim", 2, kMaxWidth);
  dims->v_head_dim = config.required_integer("v_head_dim", 1, kMaxWidth);
  if (dims->qk_rope_head_dim % 2 != 0) {
    config.refuse(ErrorCode::kOutOfBounds, "qk_rope_head_dim",
                  fmt::format("{}; RoPE turns pairs of elements", dims->qk_rope_head_dim));
  }
  if (!config.flag("rope_interleave").value_or(true)) {
    config.refuse(ErrorCode::kUnsupported, "rope_interleave",
                  "only neighbouring elements rotate together here");
  }
}

DeepSeekV3::Score read_score(const HfConfigFields& config, bool is_v2) {
  const std::string score = config.text("scoring_func").value_or(is_v2 ? "softmax" : "sigmoid");
  if (score == "softmax") return DeepSeekV3::Score::kSoftmax;
  if (score == "sigmoid") return DeepSeekV3::Score::kSigmoid;
  config.refuse(ErrorCode::kUnsupported, "scoring_func",
                fmt::format("'{}'; known are softmax and sigmoid", printable(score, 40)));
}

// One group is none: it limits nothing. `greedy` does not look at groups, whatever their number.
void read_groups(const HfConfigFields& config, bool is_v2, DeepSeekV3* dims) {
  const std::string method = config.text("topk_method").value_or(is_v2 ? "greedy" : "noaux_tc");
  if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc") {
    config.refuse(
        ErrorCode::kUnsupported, "topk_method",
        fmt::format("'{}'; known are greedy, group_limited_greedy and noaux_tc", printable(method, 40)));
  }
  const int64_t num_groups = config.integer("n_group", 0, dims->num_experts).value_or(0);
  const int64_t num_limited = config.integer("topk_group", 0, kMaxExperts).value_or(0);
  if (num_groups <= 1 || method == "greedy") return;
  if (dims->num_experts % num_groups != 0) {
    config.refuse(ErrorCode::kOutOfBounds, "n_group",
                  fmt::format("{} does not divide n_routed_experts, {}", num_groups, dims->num_experts));
  }
  if (num_limited < 1 || num_limited > num_groups) {
    config.refuse(ErrorCode::kOutOfBounds, "topk_group",
                  fmt::format("{} of {} groups (n_group)", num_limited, num_groups));
  }
  dims->num_expert_groups = num_groups;
  dims->num_limited_groups = num_limited;
}

void read_experts(const HfConfigFields& config, bool is_v2, DeepSeekV3* dims) {
  dims->n_dense_layers = config.required_integer("first_k_dense_replace", 0, dims->n_layers);
  if (config.integer("moe_layer_freq", 1, kMaxLayers).value_or(1) != 1) {
    config.refuse(ErrorCode::kUnsupported, "moe_layer_freq", "after the dense layers, all have experts here");
  }
  dims->moe_hidden_dim = config.required_integer("moe_intermediate_size", 1, kMaxWidth);
  dims->num_experts = config.required_integer("n_routed_experts", 1, kMaxExperts);
  dims->num_shared_experts = config.required_integer("n_shared_experts", 1, kMaxExperts);
  dims->top_k = config.required_integer("num_experts_per_tok", 1, dims->num_experts);
  if (dims->n_layers * dims->num_experts > kMaxExpertsOfAllLayers) {
    config.refuse(ErrorCode::kTooLarge, "n_routed_experts",
                  fmt::format("{} in each of {} layers", dims->num_experts, dims->n_layers));
  }
  dims->score_func = read_score(config, is_v2);
  read_groups(config, is_v2, dims);
  dims->route_scale = config.number("routed_scaling_factor", 0, 1e6).value_or(is_v2 ? 1 : 2.5);
  dims->route_norm = config.flag("norm_topk_prob").value_or(!is_v2);
}

DeepSeekV3 read_deepseek(const HfConfigFields& config, bool is_v2) {
  DeepSeekV3 dims;
  dims.dim = config.required_integer("hidden_size", 1, kMaxWidth);
  dims.n_layers = config.required_integer("num_hidden_layers", 1, kMaxLayers);
  dims.vocab_size = config.required_integer("vocab_size", 1, kMaxVocab);
  dims.hidden_dim = config.required_integer("intermediate_size", 1, kMaxWidth);
  read_attention(config, &dims);
  read_experts(config, is_v2, &dims);
  dims.num_mtp_layers = config.integer("num_nextn_predict_layers", 0, kMaxMtpLayers).value_or(0);
  dims.tied_embeddings = config.flag("tie_word_embeddings").value_or(false);
  dims.norm_eps = config.number("rms_norm_eps", 0, 1).value_or(1e-6);
  dims.rope = read_hf_rope(config, is_v2 ? 2048 : 4096, &dims.mscale);
  return dims;
}

Model read_model(const HfConfigFields& config) {
  const auto type = config.text("model_type");
  if (!type) {
    config.refuse(ErrorCode::kMissingKey, "model_type", "the field is missing",
                  "is this a model's config.json?");
  }
  Model model;
  if (*type == "llama") {
    model.dims = read_llama(config);
  } else if (*type == "deepseek_v3" || *type == "deepseek_v2") {
    model.dims = read_deepseek(config, *type == "deepseek_v2");
  } else {
    ValueError error(fmt::format("there is no key map for '{}'; known are llama, deepseek_v2, deepseek_v3",
                                 printable(*type, 80)));
    error.set_key("model_type");
    throw error;
  }
  demand_common_settings(config);
  if (const auto entry = flavor::find_equal(model)) model.name = entry->name;
  return model;
}

void demand_countable(const Model& model) {
  int64_t count = kMaxParameters + 1;
  try {
    count = num_parameters(model);
  } catch (const ValueError&) {  // more than 64 bits: refused below like any other absurd size
  }
  if (count <= kMaxParameters) return;
  throw FormatError(ErrorCode::kTooLarge, "the dimensions multiply to more than 2^56 parameters");
}

std::optional<DType> read_dtype(const HfConfigFields& config) {
  const std::string_view field = config.text("dtype") ? "dtype" : "torch_dtype";
  const auto name = config.text(field);
  if (!name || *name == "auto") return std::nullopt;
  const auto dtype = dtype_from_name(name->starts_with("torch.") ? name->substr(6) : *name);
  if (!dtype) {
    config.refuse(ErrorCode::kUnsupported, field, fmt::format("unknown dtype '{}'", printable(*name, 40)));
  }
  return dtype;
}

void read_quantisation(const HfConfigFields& config, HfConfig* result) {
  const auto quantisation = config.object("quantization_config");
  if (!quantisation || quantisation->text("quant_method") != "fp8") return;
  const std::string format = quantisation->text("fmt").value_or("e4m3");
  if (format != "e4m3") {
    quantisation->refuse(ErrorCode::kUnsupported, "fmt",
                         fmt::format("'{}'; fp8 weights are e4m3 here", printable(format, 40)));
  }
  result->quantised_fp8 = true;
  if (const auto block = quantisation->pair("weight_block_size", 1, kMaxBlock)) {
    result->quantised_block[0] = block->first;
    result->quantised_block[1] = block->second;
  }
}

}  // namespace

HfConfig read_hf_config(std::string_view text, std::string_view path) {
  try {
    const nlohmann::ordered_json json = parse_hf_config(text);
    const HfConfigFields config(&json);
    HfConfig result;
    result.model = read_model(config);
    demand_countable(result.model);
    result.dtype = read_dtype(config);
    read_quantisation(config, &result);
    return result;
  } catch (Error& error) {
    error.set_path(path);
    throw;
  }
}

}  // namespace milepost::adapt
