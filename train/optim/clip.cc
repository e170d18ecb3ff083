#include <cmath>

#include "train/optim/optimizer.h"

namespace milepost::train {

double clip_gradients(const std::vector<Parameter*>& parameters, double max_norm) {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const Parameter* p : parameters) {
    const at::Tensor& gradient = p->local.grad();
    if (gradient.defined()) squares += gradient.to(at::kDouble).square().sum().item<double>();
  }
  const double norm = std::sqrt(squares);
  const float factor = static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6F);
  if (factor >= 1) return norm;
  for (const Parameter* p : parameters) {
    if (p->local.grad().defined()) p->local.mutable_grad().mul_(factor);
  }
  return norm;
}

}  // namespace milepost::train
