// Shapes: B sequences, L positions, D model dimension, H heads, N unrotated and R rotated part of a query or
// key, V value, C latent.
#include "train/models/deepseek_v3/attention.h"

#include <cmath>

namespace milepost::train {
namespace {

// 1 / sqrt(size of a query), times the square of YaRN's temperature where contexts are stretched
// (arXiv:2309.00071, section 3.4).
double score_scale(const flavor::DeepSeekV3& dims) {
  const double scale = 1 / std::sqrt(static_cast<double>(dims.qk_nope_head_dim + dims.qk_rope_head_dim));
  if (dims.rope.scaling != flavor::Rope::Scaling::kYarn || dims.rope.factor <= 1) return scale;
  const double temperature = 0.1 * dims.mscale * std::log(dims.rope.factor) + 1;
  return scale * temperature * temperature;
}

}  // namespace

LatentAttention::LatentAttention(const std::string& name, const flavor::DeepSeekV3& dims, int64_t layer)
    : wkv_a(name + ".wkv_a", dims.dim, dims.kv_lora_rank + dims.qk_rope_head_dim, projection_init()),
      wkv_b(name + ".wkv_b", dims.kv_lora_rank, dims.n_heads * (dims.qk_nope_head_dim + dims.v_head_dim),
            projection_init()),
      wo(name + ".wo", dims.n_heads * dims.v_head_dim, dims.dim, depth_init(layer)),
      kv_norm(name + ".kv_norm", dims.kv_lora_rank, dims.norm_eps),
      num_heads(dims.n_heads),
      nope_dim(dims.qk_nope_head_dim),
      rope_dim(dims.qk_rope_head_dim),
      v_dim(dims.v_head_dim),
      kv_rank(dims.kv_lora_rank),
      scale(score_scale(dims)) {
  const int64_t query_dim = num_heads * (nope_dim + rope_dim);
  if (dims.q_lora_rank == 0) {
    wq.emplace(name + ".wq", dims.dim, query_dim, projection_init());
  } else {
    wq_a.emplace(name + ".wq_a", dims.dim, dims.q_lora_rank, projection_init());
    q_norm.emplace(name + ".q_norm", dims.q_lora_rank, dims.norm_eps);
    wq_b.emplace(name + ".wq_b", dims.q_lora_rank, query_dim, projection_init());
  }
}

at::Tensor LatentAttention::operator()(const at::Tensor& x_BLD, const at::Tensor& positions_BL,
                                       const RopeTable& rope,
                                       const std::shared_ptr<const DocumentBorders>& borders) const {
  const at::Tensor flat_q = wq ? (*wq)(x_BLD) : (*wq_b)((*q_norm)((*wq_a)(x_BLD)));
  const at::Tensor q_BLHK =
      rope_in_place(flat_q.unflatten(-1, {num_heads, nope_dim + rope_dim}), rope, positions_BL);

  const auto kv_parts = wkv_a(x_BLD).split_with_sizes({kv_rank, rope_dim}, -1);
  const at::Tensor k_rope_BLR = apply_rope(kv_parts[1], rope, positions_BL);
  const at::Tensor kv_BLHE = wkv_b(kv_norm(kv_parts[0])).unflatten(-1, {num_heads, nope_dim + v_dim});
  return wo(latent_attention(q_BLHK, kv_BLHE, k_rope_BLR, borders, scale).flatten(2));
}

std::vector<Parameter*> LatentAttention::parameters() {
  std::vector<Parameter*> all;
  if (wq) all = {&wq->weight};
  if (wq_a) all = {&wq_a->weight, &q_norm->weight, &wq_b->weight};
  all.insert(all.end(), {&wkv_a.weight, &kv_norm.weight, &wkv_b.weight, &wo.weight});
  return all;
}

}  // namespace milepost::train
