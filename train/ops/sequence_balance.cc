#include "train/ops/sequence_balance.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// f, [B, 1, E].
at::Tensor load_fractions(const at::Tensor& expert_ids_BLK, int64_t num_experts) {
  const int64_t batch = expert_ids_BLK.size(0), pairs = expert_ids_BLK.size(1) * expert_ids_BLK.size(2);
  const at::Tensor first_bin = at::arange(batch, expert_ids_BLK.options()).mul(num_experts).view({-1, 1, 1});
  const at::Tensor counts = at::bincount((expert_ids_BLK + first_bin).flatten(), {}, batch * num_experts);
  return counts.to(at::kFloat)
      .mul(static_cast<double>(num_experts) / static_cast<double>(pairs))
      .view({batch, 1, num_experts});
}

class AddGradient : public torch::autograd::Function<AddGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores_BLE,
                            const at::Tensor& fractions_B1E, double factor) {
    context->save_for_backward({scores_BLE, fractions_B1E});
    context->saved_data["factor"] = factor;
    return scores_BLE.detach();
  }

  // With p = score / sum: d loss / d score_e = factor / (L sum) * (f_e - sum over e' of f_e' p_e').
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &scores_BLE = saved[0], &fractions_B1E = saved[1];
    const double share = context->saved_data["factor"].toDouble() / static_cast<double>(scores_BLE.size(1));
    const at::Tensor sum_BL1 = scores_BLE.sum(-1, true);
    const at::Tensor mean_BL1 = (scores_BLE * fractions_B1E).sum(-1, true) / sum_BL1;
    return {gradients[0] + (fractions_B1E - mean_BL1) / sum_BL1 * share, {}, {}};
  }
};

}  // namespace

SequenceBalance with_sequence_balance(const at::Tensor& scores_BLE, const at::Tensor& expert_ids_BLK,
                                      double factor) {
  at::Tensor fractions_B1E;
  double loss = 0;
  if (scores_BLE.numel() == 0) return {scores_BLE, loss};
  {
    const at::NoGradGuard no_grad;
    fractions_B1E = load_fractions(expert_ids_BLK, scores_BLE.size(2));
    const at::Tensor mean_B1E = (scores_BLE / scores_BLE.sum(-1, true)).mean(1, true);
    loss = factor * (fractions_B1E * mean_B1E).sum().item<double>();
  }
  return {AddGradient::apply(scores_BLE, fractions_B1E, factor), loss};
}

}  // namespace milepost::train
