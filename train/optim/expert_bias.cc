#include "train/optim/optimizer.h"

namespace milepost::train {

void update_expert_biases(const std::vector<ExpertLoad*>& loads, double coeff, Group* ranks) {
  const at::NoGradGuard no_grad;
  for (const ExpertLoad* load : loads) {
    if (!load->is_balanced || !load->bias_E) continue;
    at::Tensor& tokens_E = load->tokens_E->local;
    if (ranks != nullptr) all_reduce(*ranks, tokens_E);
    const at::Tensor delta_E = tokens_E.mean().sub(tokens_E).sign().mul(coeff);
    load->bias_E->local.add_(delta_E - delta_E.mean());
    tokens_E.zero_();
  }
}

}  // namespace milepost::train
