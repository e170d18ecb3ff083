// RoPE between Hugging Face's fields and TorchTitan's.
//
// With YaRN, transformers scales in two places: cos and sin by `attention_factor` (by default
// m(mscale) / m(mscale_all_dim), or m(1) when one of the two is absent or 0; m(x) = 0.1 x ln(factor) + 1),
// and DeepSeek's softmax by m(mscale_all_dim)^2 unless mscale_all_dim is 0. TorchTitan's RoPE is a pure
// rotation and its softmax is scaled by m(attention.mscale)^2. So `mscale` = `mscale_all_dim` =
// attention.mscale is the same model, and a file whose attention_factor is not 1 is none that TorchTitan can
// express: it would stretch the rotary part of queries and keys only.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "adapt/hf_config_fields.h"
#include "milepost/flavor/flavor.h"

namespace milepost::adapt {

// From `rope_theta`, `rope_scaling` (4.x) or `rope_parameters` (transformers 5), and
// `max_position_embeddings`, which is `default_max_seq_len` when absent. `*mscale` is set for YaRN only.
flavor::Rope read_hf_rope(const HfConfigFields& config, int64_t default_max_seq_len, double* mscale);

// Adds `rope_theta`, `rope_scaling` and `max_position_embeddings`. Without `mscale` the softmax is not to be
// scaled.
void write_hf_rope(const flavor::Rope& rope, std::optional<double> mscale, nlohmann::ordered_json* config);

}  // namespace milepost::adapt
