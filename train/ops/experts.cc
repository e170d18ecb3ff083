#include "train/ops/experts.h"

#include "train/ops/unfused.h"

namespace milepost::train {

at::Tensor count_experts(const at::Tensor& expert_ids_TK, int64_t num_experts) {
  return at::bincount(expert_ids_TK.flatten(), {}, num_experts);
}

at::Tensor routed_experts(const at::Tensor& x_TD, const at::Tensor& w1_EFD, const at::Tensor& w2_EDF,
                          const at::Tensor& w3_EFD, const at::Tensor& expert_ids_TK,
                          const at::Tensor& weights_TK, bool bf16) {
  return unfused::routed_experts(x_TD, w1_EFD, w2_EDF, w3_EFD, expert_ids_TK, weights_TK, bf16);
}

}  // namespace milepost::train
