#include "train/ops/attention.h"

#include "train/ops/unfused.h"

namespace milepost::train {

at::Tensor attention(const at::Tensor& q_BLHD, const at::Tensor& k_BLGD, const at::Tensor& v_BLGV,
                     const std::shared_ptr<const DocumentBorders>& borders, double scale) {
  return unfused::attention(q_BLHD, k_BLGD, v_BLGV, borders, scale);
}

at::Tensor latent_attention(const at::Tensor& q_BLHD, const at::Tensor& kv_BLHE, const at::Tensor& k_rope_BLR,
                            const std::shared_ptr<const DocumentBorders>& borders, double scale) {
  return unfused::latent_attention(q_BLHD, kv_BLHE, k_rope_BLR, borders, scale);
}

}  // namespace milepost::train
