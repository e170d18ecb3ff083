#include "train/ops/unfused.h"

#include <cmath>
#include <vector>

namespace milepost::train::unfused {
namespace {

// Bool [B, 1, L, L], true where the query (third) may see the key (fourth).
at::Tensor visible(const DocumentBorders& borders) {
  const at::Tensor begin =
      at::tensor(borders.begin_BL, at::kLong).view({borders.batch, 1, borders.length, 1});
  const at::Tensor index = at::arange(borders.length, at::kLong);
  const at::Tensor key = index.view({1, 1, 1, -1});
  return (key <= index.view({1, 1, -1, 1})).logical_and(key >= begin);
}

}  // namespace

at::Tensor attention(const at::Tensor& q_BLHD, const at::Tensor& k_BLGD, const at::Tensor& v_BLGV,
                     const std::shared_ptr<const DocumentBorders>& borders, double scale) {
  const int64_t repeat = q_BLHD.size(2) / k_BLGD.size(2);
  const at::Tensor q = q_BLHD.transpose(1, 2).to(at::kFloat);
  const at::Tensor k = k_BLGD.transpose(1, 2).repeat_interleave(repeat, 1).to(at::kFloat);
  const at::Tensor v = v_BLGV.transpose(1, 2).repeat_interleave(repeat, 1).to(at::kFloat);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)).mul(scale);
  const at::Tensor masked = scores.masked_fill(visible(*borders).logical_not().to(q.device()), -INFINITY);
  return at::matmul(masked.softmax(-1), v).transpose(1, 2).to(q_BLHD.scalar_type());
}

at::Tensor latent_attention(const at::Tensor& q_BLHD, const at::Tensor& kv_BLHE, const at::Tensor& k_rope_BLR,
                            const std::shared_ptr<const DocumentBorders>& borders, double scale) {
  const int64_t rope_dim = k_rope_BLR.size(2), nope_dim = q_BLHD.size(3) - rope_dim;
  const at::Tensor rope = k_rope_BLR.unsqueeze(2).expand({-1, -1, q_BLHD.size(2), -1});
  const at::Tensor k = at::cat({kv_BLHE.narrow(3, 0, nope_dim), rope}, -1);
  return unfused::attention(q_BLHD, k, kv_BLHE.narrow(3, nope_dim, kv_BLHE.size(3) - nope_dim), borders,
                            scale);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor normed = wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps);
  return (normed * weight.to(at::kFloat)).to(x.scalar_type());
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions_BL) {
  std::vector<int64_t> angles = x.sizes().vec();
  angles.back() = table.dim / 2;
  if (x.dim() == 4) angles[2] = 1;
  const at::Tensor cos = table.cos.index_select(0, positions_BL.flatten()).view(angles);
  const at::Tensor sin = table.sin.index_select(0, positions_BL.flatten()).view(angles);
  const at::Tensor pairs = x.to(at::kFloat).unflatten(-1, {-1, 2});
  const at::Tensor even = pairs.select(-1, 0), odd = pairs.select(-1, 1);
  return at::stack({even * cos - odd * sin, even * sin + odd * cos}, -1).flatten(-2).to(x.scalar_type());
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

at::Tensor routed_experts(const at::Tensor& x_TD, const at::Tensor& w1_EFD, const at::Tensor& w2_EDF,
                          const at::Tensor& w3_EFD, const at::Tensor& expert_ids_TK,
                          const at::Tensor& weights_TK, bool bf16) {
  const int64_t top_k = expert_ids_TK.size(1);
  const at::ScalarType dtype = bf16 ? at::kBFloat16 : x_TD.scalar_type();
  const at::Tensor order = std::get<1>(expert_ids_TK.flatten().sort(/*stable=*/true, -1, false));
  const at::Tensor sorted_ids = expert_ids_TK.flatten().index_select(0, order);
  const at::Tensor token = order.floor_divide(top_k);
  const at::Tensor rows = x_TD.index_select(0, token);
  std::vector<at::Tensor> outputs;
  for (int64_t expert = 0, at = 0; expert < w1_EFD.size(0); ++expert) {
    const int64_t count = sorted_ids.eq(expert).sum().item<int64_t>();
    const at::Tensor in = rows.narrow(0, at, count);
    at += count;
    const at::Tensor gate = in.to(dtype).mm(w1_EFD.select(0, expert).to(dtype).t());
    const at::Tensor up = in.to(dtype).mm(w3_EFD.select(0, expert).to(dtype).t());
    outputs.push_back((at::silu(gate) * up).mm(w2_EDF.select(0, expert).to(dtype).t()));
  }
  const at::Tensor weight = weights_TK.flatten().index_select(0, order).unsqueeze(1);
  const at::Tensor weighted =
      (at::cat(outputs).to(x_TD.scalar_type()).to(at::kFloat) * weight).to(x_TD.scalar_type());
  return at::zeros_like(x_TD).index_add(0, token, weighted);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits_TV, const at::Tensor& labels_T) {
  return at::cross_entropy_loss(logits_TV.to(at::kFloat), labels_T, {}, at::Reduction::Sum, -100);
}

}  // namespace milepost::train::unfused
