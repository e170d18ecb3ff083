// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1; spec training, section 5): keys
// and values of all heads come from one latent vector a token, and one rotated key serves all heads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/flavor/flavor.h"
#include "train/models/common/modules.h"
#include "train/ops/attention.h"
#include "train/ops/rope.h"

namespace milepost::train {

struct LatentAttention {
  // Queries: one projection without q_lora_rank, else down, norm and up.
  std::optional<Linear> wq, wq_a, wq_b;
  std::optional<RmsNorm> q_norm;
  Linear wkv_a, wkv_b, wo;
  RmsNorm kv_norm;
  int64_t num_heads, nope_dim, rope_dim, v_dim, kv_rank;
  double scale;  // of scores

  LatentAttention(const std::string& name, const flavor::DeepSeekV3& dims, int64_t layer);
  at::Tensor operator()(const at::Tensor& x_BLD, const at::Tensor& positions_BL, const RopeTable& rope,
                        const std::shared_ptr<const DocumentBorders>& borders) const;
  std::vector<Parameter*> parameters();
};

}  // namespace milepost::train
