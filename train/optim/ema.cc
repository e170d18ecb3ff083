#include "train/optim/ema.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>

#include "train/ops/kernels/moving_average.h"
#include "train/ops/tensor_rows.h"

namespace milepost::train {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kScratchBytes = int64_t{128} << 20;  // on the device, of an average on the host

void move_on_host(double share, const at::Tensor& values, const at::Tensor& average) {
  const int64_t count = values.numel(), blocks = (count + kBlock - 1) / kBlock;
  with_element_type("a moving average", values.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, blocks, 8, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * kBlock;
      kernels::move_average(static_cast<float>(share), const_data<T>(values) + at, data<T>(average) + at,
                            std::min(end * kBlock, count) - at);
    });
  });
}

// The average lies on the host, its parameter does not: piece by piece through the device.
void move_offloaded(double share, const at::Tensor& values, const at::Tensor& average) {
  const at::Tensor from = values.view(-1), to = average.view(-1);
  const int64_t piece = kScratchBytes / static_cast<int64_t>(values.element_size());
  for (int64_t at = 0; at < from.numel(); at += piece) {
    const int64_t length = std::min(piece, from.numel() - at);
    const at::Tensor host = to.narrow(0, at, length);
    at::Tensor scratch = host.to(values.device(), /*non_blocking=*/true);
    scratch.lerp_(from.narrow(0, at, length), share);
    host.copy_(scratch, /*non_blocking=*/true);
  }
}

at::Tensor memory_for(const at::Tensor& values, bool offload) {
  const bool is_pinned = offload && !values.is_cpu();
  return at::empty(values.sizes(),
                   is_pinned ? values.options().device(at::kCPU).pinned_memory(true) : values.options());
}

}  // namespace

std::optional<double> ema_decay(const config::EmaWeights& options, int64_t step) {
  const int64_t since = step - options.start_step;
  if (since < 0 || since % options.update_every_n_steps != 0) return std::nullopt;
  if (options.decay) return options.decay;
  const int64_t updates = std::max<int64_t>(1, (since + options.step_bias) / options.update_every_n_steps);
  return std::exp2(-1 / (options.half_life_fraction * static_cast<double>(updates)));
}

Ema::Ema(const std::vector<Parameter*>& parameters, const config::EmaWeights& options) : options_(options) {
  for (const Parameter* parameter : parameters) {
    if (!parameter->trainable) continue;
    averages_.push_back({parameter, memory_for(parameter->local.detach(), options.offload_to_cpu)});
  }
  reseed();
}

const std::vector<Ema::Average>& Ema::averages() {
  if (std::exchange(is_queued_, false)) {
    const at::Device device = averages_[0].parameter->local.device();
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
  return averages_;
}

void Ema::update(int64_t step) {
  const std::optional<double> decay = ema_decay(options_, step);
  if (!decay) return;
  const at::NoGradGuard no_grad;
  for (const Average& average : averages_) {
    const at::Tensor values = average.parameter->local.detach();
    if (values.numel() == 0) continue;
    if (values.is_cpu()) {
      move_on_host(1 - *decay, values, average.values);
    } else if (average.values.device() == values.device()) {
      at::Tensor(average.values).lerp_(values, 1 - *decay);
    } else {
      move_offloaded(1 - *decay, values, average.values);
      is_queued_ = true;
    }
  }
}

void Ema::reseed() {
  const at::NoGradGuard no_grad;
  for (const Average& average : averages())
    at::Tensor(average.values).copy_(average.parameter->local.detach());
}

}  // namespace milepost::train
