#include "train/run/non_finite.h"

#include <fmt/format.h>

#include <cmath>

namespace milepost::train {
namespace {

// The sum is finite only if every element is, but for sums that overflow; so it decides quickly, and the
// elements decide in doubt.
bool is_finite(const at::Tensor& tensor) {
  if (std::isfinite(tensor.sum(at::kFloat).item<float>())) return true;
  return at::isfinite(tensor).all().item<bool>();
}

}  // namespace

std::optional<std::string> first_non_finite(const std::vector<Parameter*>& parameters) {
  const at::NoGradGuard no_grad;
  for (const Parameter* parameter : parameters) {
    if (parameter->local.defined() && !is_finite(parameter->local)) return "the value of " + parameter->name;
  }
  for (const Parameter* parameter : parameters) {
    if (!parameter->local.defined() || !parameter->trainable) continue;
    const at::Tensor& gradient = parameter->local.grad();
    if (gradient.defined() && !is_finite(gradient)) return "the gradient of " + parameter->name;
  }
  return std::nullopt;
}

void check_finite(int64_t step, double loss, std::optional<double> grad_norm,
                  const std::vector<Parameter*>& parameters) {
  const bool loss_is_finite = std::isfinite(loss);
  if (loss_is_finite && (!grad_norm || std::isfinite(*grad_norm))) return;
  const std::string what = loss_is_finite
                               ? fmt::format("Gradient norm is not finite (grad_norm={})", *grad_norm)
                               : fmt::format("Loss is not finite (global_avg_loss={})", loss);
  const std::string where = first_non_finite(parameters).value_or("none, of values and gradients");
  throw NonFiniteError(
      fmt::format("{} at step {}. Stopping training. First that is not finite: {}", what, step, where),
      "resume from the last checkpoint with a lower learning rate, or look at the data of "
      "this step");
}

}  // namespace milepost::train
