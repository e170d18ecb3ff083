// The same mathematics as the fused operations, written with ATen's own: what the fused ones are held
// against in tests.
#pragma once

#include "train/ops/attention.h"
#include "train/ops/rope.h"

namespace milepost::train::unfused {

at::Tensor attention(const at::Tensor& q_BLHD, const at::Tensor& k_BLGD, const at::Tensor& v_BLGV,
                     const std::shared_ptr<const DocumentBorders>& borders, double scale);
at::Tensor latent_attention(const at::Tensor& q_BLHD, const at::Tensor& kv_BLHE, const at::Tensor& k_rope_BLR,
                            const std::shared_ptr<const DocumentBorders>& borders, double scale);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions_BL);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor routed_experts(const at::Tensor& x_TD, const at::Tensor& w1_EFD, const at::Tensor& w2_EDF,
                          const at::Tensor& w3_EFD, const at::Tensor& expert_ids_TK,
                          const at::Tensor& weights_TK, bool bf16);
at::Tensor cross_entropy_sum(const at::Tensor& logits_TV, const at::Tensor& labels_T);

}  // namespace milepost::train::unfused
