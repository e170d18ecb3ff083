#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "train/optim/optimizer.h"

namespace milepost::train {

LrSchedule::LrSchedule(const config::LrScheduler& options, int64_t training_steps)
    : warmup_(options.warmup_steps),
      decay_type_(options.decay_type.text()),
      min_factor_(options.min_lr_factor) {
  const int64_t total = options.total_steps.value_or(training_steps);
  if (warmup_ > total) {
    warnings_.push_back(fmt::format(
        "Warmup steps ({}) exceed total steps ({}). Adjusting warmup steps to {}.", warmup_, total, total));
    warmup_ = total;
  }
  decay_ = total - warmup_;
  if (options.decay_ratio) {
    // Halves go to the even number, as in Python.
    const auto wanted = std::llrint(static_cast<double>(total) * *options.decay_ratio);
    if (wanted > decay_) {
      warnings_.push_back(
          fmt::format("Warmup ({}) + decay ({}) steps exceed total steps ({}). Adjusting decay steps to {}.",
                      warmup_, wanted, total, decay_));
    } else {
      decay_ = wanted;
    }
  }
  stable_ = total + 1 - warmup_ - decay_;  // one more, so that the last step's rate is not yet 0
}

double LrSchedule::factor(int64_t index) const {
  if (index < warmup_) return static_cast<double>(index + 1) / static_cast<double>(warmup_);
  if (index < warmup_ + stable_) return 1;
  const auto past = static_cast<double>(index + 1 - warmup_ - stable_);
  const double progress = std::min(past / static_cast<double>(decay_), 1.0);
  double left = 1 - progress;
  if (decay_type_ == "sqrt") left = 1 - std::sqrt(progress);
  if (decay_type_ == "cosine") left = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return min_factor_ + (1 - min_factor_) * left;
}

LrScheduler::LrScheduler(LrSchedule schedule, Optimizer& optimizer)
    : schedule_(std::move(schedule)), optimizer_(optimizer) {
  restore(0);
}

void LrScheduler::step() { restore(last_epoch_ + 1); }

void LrScheduler::restore(int64_t last_epoch) {
  last_epoch_ = last_epoch;
  for (ParameterGroup& group : optimizer_.groups()) {
    group.lr = group.options.optimizer_kwargs.lr * schedule_.factor(last_epoch);
  }
}

}  // namespace milepost::train
