// The `model` section: which model is trained. TorchTitan keeps it from the command line; so do we, but for
// the fields that TorchTitan 0.3.0 has not. In a configuration file all of it may stand, dimensions included:
//
//   "model": {"name": "llama3", "flavor": "8B"}                     a registry flavor
//   "model": {"name": "llama3", "flavor": "debugmodel", "dim": 512}  a flavor with changes: it has no name
//   then
//
// Plain values, as in sections.h.
#pragma once

#include "milepost/config/declare.h"
#include "milepost/config/values.h"
#include "milepost/flavor/flavor.h"

namespace milepost::config {

inline constexpr std::string_view kAttentionBackends[] = {"flex", "flex_flash", "varlen"};
inline constexpr std::string_view kExpertDispatchers[] = {"all_to_all", "deepep", "hybridep",
                                                          "minimal_async_ep"};

// clang-format off
MILEPOST_CONFIG(ModelOptions, "The model beside its dimensions.",
  (Choice<kAttentionBackends>, attn_backend, "flex", "Attention kernel. All compute causal attention within documents.", kFileOnly)
  (std::optional<double>, load_balance_coeff, 1e-3, "Speed at which expert biases even out the load; None: no biases.", kFileOnly)
  (std::optional<double>, aux_loss_coeff, std::nullopt, "Weight of the sequence-wise load-balance loss that later TorchTitan adds (there 1e-3); None: no such loss, as in 0.3.0.", kOurs)
  (bool, fp32_experts, false, "Compute routed experts in the compute dtype instead of bfloat16.", kOurs)
  (Choice<kExpertDispatchers>, moe_comm_backend, "all_to_all", "How tokens reach experts on other ranks.", kFileOnly)
  (std::optional<double>, non_blocking_capacity_factor, std::nullopt, "Room for tokens at each expert, for hybridep without waiting for the host.", kFileOnly)
  (Strings, extras, {}, "What some registry entries use and this version has not, such as float8; they are refused when a run starts.", kOurs | kFileOnly))
// clang-format on

struct Model {
  flavor::Model architecture = {"", flavor::Llama3{}};
  ModelOptions options;
  friend bool operator==(const Model& a, const Model& b) {
    return a.architecture.name == b.architecture.name && a.architecture.dims == b.architecture.dims &&
           a.options == b.options;
  }
};

}  // namespace milepost::config
