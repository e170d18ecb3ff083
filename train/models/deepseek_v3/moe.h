// A mixture of experts with shared experts and routing that is kept even by a bias (DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2; group-limited choice: DeepSeek-V2, section 2.1.3; spec training, section
// 5). Shapes: B sequences, L positions, T = B L tokens, D model dimension, E experts, K experts a token, F
// hidden dimension of an expert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "milepost/flavor/flavor.h"
#include "train/models/common/modules.h"
#include "train/models/model.h"

namespace milepost::train {

struct Routing {
  at::Tensor scores_TE;     // of the gate: sigmoid or softmax, float32
  at::Tensor ids_TK;        // chosen experts, int64
  at::Tensor weights_TK;    // what their results are multiplied by, float32
  double balance_loss = 0;  // sequence-wise
};

struct MixtureOfExperts {
  Parameter w1_EFD, w2_EDF, w3_EFD;  // routed experts
  Linear gate;
  std::optional<FeedForward> shared_experts;
  std::optional<Parameter> expert_bias_E;  // takes part in the choice of experts only
  Parameter tokens_per_expert_E;
  flavor::DeepSeekV3 dims;
  bool bf16_experts, force_load_balance;

  // `name` is the layer's: "layers.1.moe" follows from it. Throws ValueError for groups that cannot be.
  MixtureOfExperts(const std::string& name, const flavor::DeepSeekV3& dims, int64_t layer,
                   const config::ModelOptions& config, const ModelOptions& options);
  // `sequences`: B. `balance`: factor of the sequence-wise loss, whose gradient comes with that of the
  // weights; 0: no such loss.
  Routing route(const at::Tensor& x_TD, int64_t sequences, double balance) const;
  // The routed experts' weighted sum and the shared experts'.
  at::Tensor operator()(const at::Tensor& x_TD, const Routing& routing) const;
  // Tokens of each expert, float32 [E].
  at::Tensor count(const Routing& routing) const;
  std::vector<Parameter*> parameters();
};

}  // namespace milepost::train
