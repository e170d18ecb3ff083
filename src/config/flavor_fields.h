// Descriptions of the flavors' fields, so that a file can hold a model of any size (flavor.h declares them).
#pragma once

#include <boost/describe.hpp>
#include <span>
#include <string_view>

#include "milepost/flavor/flavor.h"

namespace milepost::flavor {

BOOST_DESCRIBE_STRUCT(Rope, (),
                      (theta, max_seq_len, scaling, factor, low_freq_factor, high_freq_factor, beta_fast,
                       beta_slow, original_max_seq_len))
BOOST_DESCRIBE_STRUCT(Llama3, (),
                      (dim, n_layers, n_heads, n_kv_heads, head_dim, hidden_dim, vocab_size, tied_embeddings,
                       norm_eps, rope))
BOOST_DESCRIBE_STRUCT(DeepSeekV3, (),
                      (dim, n_layers, n_dense_layers, n_heads, vocab_size, q_lora_rank, kv_lora_rank,
                       qk_nope_head_dim, qk_rope_head_dim, v_head_dim, mscale, hidden_dim, moe_hidden_dim,
                       num_experts, num_shared_experts, top_k, score_func, num_expert_groups,
                       num_limited_groups, route_scale, route_norm, num_mtp_layers, tied_embeddings, norm_eps,
                       rope))

// Names of the enumerators, in their order.
inline constexpr std::string_view kRopeScalings[] = {"none", "llama", "yarn"};
inline constexpr std::string_view kScores[] = {"softmax", "sigmoid"};
inline std::span<const std::string_view> enumerator_names(Rope::Scaling) { return kRopeScalings; }
inline std::span<const std::string_view> enumerator_names(DeepSeekV3::Score) { return kScores; }

}  // namespace milepost::flavor
