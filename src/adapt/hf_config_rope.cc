#include "adapt/hf_config_rope.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace milepost::adapt {
namespace {

using flavor::Rope;

constexpr double kMaxNumber = 1e12;
constexpr double kSmallest = 1e-12;  // stands for "greater than 0"
constexpr int64_t kMaxSeqLen = int64_t{1} << 40;

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// What transformers multiplies cos and sin by.
double attention_factor(const HfConfigFields& scaling, double factor) {
  if (const auto given = scaling.number("attention_factor", 0, kMaxNumber)) return *given;
  const double mscale = scaling.number("mscale", 0, kMaxNumber).value_or(0);
  const double mscale_all_dim = scaling.number("mscale_all_dim", 0, kMaxNumber).value_or(0);
  if (mscale == 0 || mscale_all_dim == 0) return yarn_mscale(factor, 1);
  return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
}

void read_yarn(const HfConfigFields& scaling, Rope* rope, double* mscale) {
  rope->scaling = Rope::Scaling::kYarn;
  rope->beta_fast = scaling.number("beta_fast", kSmallest, kMaxNumber).value_or(32);
  rope->beta_slow = scaling.number("beta_slow", kSmallest, kMaxNumber).value_or(1);
  rope->original_max_seq_len =
      scaling.integer("original_max_position_embeddings", 1, kMaxSeqLen).value_or(rope->max_seq_len);
  const double on_rotation = attention_factor(scaling, rope->factor);
  if (std::abs(on_rotation - 1) > 1e-6) {
    scaling.refuse(
        ErrorCode::kUnsupported, "mscale",
        fmt::format("cos and sin are scaled by {:.6g}, but TorchTitan's RoPE only rotates", on_rotation),
        "only configs with mscale equal to mscale_all_dim, or attention_factor 1, can be converted");
  }
  if (!scaling.flag("truncate").value_or(true)) {
    scaling.refuse(ErrorCode::kUnsupported, "truncate", "YaRN without whole cut-offs is not supported");
  }
  *mscale = scaling.number("mscale_all_dim", 0, kMaxNumber).value_or(0);
}

void read_llama(const HfConfigFields& scaling, Rope* rope) {
  rope->scaling = Rope::Scaling::kLlama;
  rope->low_freq_factor = scaling.number("low_freq_factor", kSmallest, kMaxNumber).value_or(1);
  rope->high_freq_factor = scaling.number("high_freq_factor", kSmallest, kMaxNumber).value_or(4);
  rope->original_max_seq_len = scaling.required_integer("original_max_position_embeddings", 1, kMaxSeqLen);
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    scaling.refuse(ErrorCode::kOutOfBounds, "high_freq_factor", "not greater than low_freq_factor");
  }
}

void demand_full_rotation(const HfConfigFields& fields) {
  if (fields.number("partial_rotary_factor", 0, 1).value_or(1) == 1) return;
  fields.refuse(ErrorCode::kUnsupported, "partial_rotary_factor",
                "heads that rotate in part are not supported");
}

}  // namespace

Rope read_hf_rope(const HfConfigFields& config, int64_t default_max_seq_len, double* mscale) {
  Rope rope;
  rope.theta = config.number("rope_theta", kSmallest, kMaxNumber).value_or(10000);
  rope.max_seq_len = config.integer("max_position_embeddings", 1, kMaxSeqLen).value_or(default_max_seq_len);
  demand_full_rotation(config);
  auto scaling = config.object("rope_parameters");
  if (!scaling) scaling = config.object("rope_scaling");
  if (!scaling) return rope;
  rope.theta = scaling->number("rope_theta", kSmallest, kMaxNumber).value_or(rope.theta);
  demand_full_rotation(*scaling);
  auto type = scaling->text("rope_type");
  if (!type) type = scaling->text("type");
  if (!type) scaling->refuse(ErrorCode::kMissingKey, "rope_type", "the field is missing");
  if (*type == "default") return rope;
  if (*type != "yarn" && *type != "llama3") {
    scaling->refuse(ErrorCode::kUnsupported, "rope_type",
                    fmt::format("RoPE scaling '{}' is not supported; known are default, llama3, yarn",
                                printable(*type, 40)));
  }
  const auto factor = scaling->number("factor", kSmallest, kMaxNumber);
  if (!factor) scaling->refuse(ErrorCode::kMissingKey, "factor", "the field is missing");
  rope.factor = *factor;
  if (*type == "yarn") {
    read_yarn(*scaling, &rope, mscale);
  } else {
    read_llama(*scaling, &rope);
  }
  return rope;
}

void write_hf_rope(const Rope& rope, std::optional<double> mscale, nlohmann::ordered_json* config) {
  nlohmann::ordered_json scaling;
  if (rope.scaling == Rope::Scaling::kLlama) {
    scaling["rope_type"] = "llama3";
    scaling["factor"] = rope.factor;
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = rope.original_max_seq_len;
  } else if (rope.scaling == Rope::Scaling::kYarn) {
    scaling[mscale ? "type" : "rope_type"] = "yarn";  // DeepSeek's own code knows the first name only
    scaling["factor"] = rope.factor;
    scaling["original_max_position_embeddings"] = rope.original_max_seq_len;
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (mscale) {
      scaling["mscale"] = *mscale;
      scaling["mscale_all_dim"] = *mscale;
    }
    if (mscale.value_or(0) == 0) scaling["attention_factor"] = 1.0;
  }
  (*config)["rope_theta"] = rope.theta;
  (*config)["max_position_embeddings"] = rope.max_seq_len;
  (*config)["rope_scaling"] = scaling;
}

}  // namespace milepost::adapt
