#include "train/optim/adam.h"

#include <cmath>

#include "train/ops/kernels/adam.h"
#include "train/ops/tensor_rows.h"

namespace milepost::train {
namespace {

constexpr int64_t kBlock = 4096;

kernels::AdamStep settings(const ParameterGroup& group, double step) {
  const config::OptimizerKwargs& kwargs = group.options.optimizer_kwargs;
  const auto [beta1, beta2] = kwargs.betas;
  const bool is_decoupled = group.options.optimizer_name == "AdamW";
  kernels::AdamStep result;
  result.kept = static_cast<float>(is_decoupled ? 1 - group.lr * kwargs.weight_decay : 1);
  result.coupled_decay = static_cast<float>(is_decoupled ? 0 : kwargs.weight_decay);
  result.first_share = static_cast<float>(1 - beta1);
  result.beta2 = static_cast<float>(beta2);
  result.second_share = static_cast<float>(1 - beta2);
  result.step_size = static_cast<float>(group.lr / (1 - std::pow(beta1, step)));
  result.second_correction = static_cast<float>(std::sqrt(1 - std::pow(beta2, step)));
  result.eps = static_cast<float>(kwargs.eps);
  return result;
}

template <class P, class M>
void step_on(const kernels::AdamStep& step, const at::Tensor& parameter, const at::Tensor& gradient,
             const Moments& moments) {
  const int64_t count = parameter.numel(), blocks = (count + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, 8, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kBlock;
    kernels::adam_step(step, data<P>(parameter) + at, const_data<P>(gradient) + at,
                       data<M>(moments.exp_avg) + at, data<M>(moments.exp_avg_sq) + at,
                       std::min(end * kBlock, count) - at);
  });
}

// Where there is no kernel of ours.
void step_elsewhere(const ParameterGroup& group, const at::Tensor& parameter, const at::Tensor& gradient,
                    const Moments& moments) {
  const config::OptimizerKwargs& kwargs = group.options.optimizer_kwargs;
  const at::Tensor step = moments.step.to(parameter.device());
  if (group.options.optimizer_name == "AdamW") {
    at::_fused_adamw_({parameter}, {gradient}, {moments.exp_avg}, {moments.exp_avg_sq}, {}, {step}, group.lr,
                      kwargs.betas[0], kwargs.betas[1], kwargs.weight_decay, kwargs.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  } else {
    at::_fused_adam_({parameter}, {gradient}, {moments.exp_avg}, {moments.exp_avg_sq}, {}, {step}, group.lr,
                     kwargs.betas[0], kwargs.betas[1], kwargs.weight_decay, kwargs.eps, /*amsgrad=*/false,
                     /*maximize=*/false);
  }
}

}  // namespace

void adam_step(const ParameterGroup& group, const at::Tensor& parameter, const at::Tensor& any_gradient,
               const Moments& moments) {
  const at::Tensor gradient = any_gradient.contiguous();
  moments.step.add_(1);
  if (!parameter.device().is_cpu()) return step_elsewhere(group, parameter, gradient, moments);
  const kernels::AdamStep step = settings(group, moments.step.item<double>());
  with_element_type("an optimizer", parameter.scalar_type(), [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_same_v<P, float>) {
      if (moments.exp_avg.scalar_type() == at::kFloat) {
        return step_on<float, float>(step, parameter, gradient, moments);
      }
    }
    step_on<P, BFloat16>(step, parameter, gradient, moments);
  });
}

}  // namespace milepost::train
