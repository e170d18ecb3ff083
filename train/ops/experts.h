// Routed experts: each token goes through its K experts, and their results are added with the routing weights
// (spec training, section 5, steps 6 and the combination of 7).
#pragma once

#include <cstdint>

#include "train/torch.h"

namespace milepost::train {

// How many (token, slot) pairs went to each expert: int64 [E], no gradient. Throws ValueError for an id
// outside [0, E).
at::Tensor count_experts(const at::Tensor& expert_ids_TK, int64_t num_experts);

// x [T, D]; w1, w3 [E, F, D]; w2 [E, D, F]; expert_ids int64 [T, K]; weights float32 [T, K].
//   out[t] = sum over k of weights[t, k] * (silu(x[t] w1^T) * (x[t] w3^T)) w2^T, experts of expert_ids[t, k]
// Products run in bfloat16 (all three products, silu and their product stay bfloat16, as the reference) when
// `bf16`, else in x's dtype; the result is weighted in float32, cast to x's dtype and added per token in a
// fixed order. Gradients to x, the weights w1..w3 (in their dtype) and `weights`. Rows are sorted by expert
// once; no loop of small kernels. Deterministic.
at::Tensor routed_experts(const at::Tensor& x_TD, const at::Tensor& w1_EFD, const at::Tensor& w2_EDF,
                          const at::Tensor& w3_EFD, const at::Tensor& expert_ids_TK,
                          const at::Tensor& weights_TK, bool bf16);

}  // namespace milepost::train
