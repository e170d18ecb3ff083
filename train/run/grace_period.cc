#include "train/run/grace_period.h"

#include <fmt/format.h>

namespace milepost::train {

std::optional<std::string> GracePeriod::warning(double step, double save) {
  if (has_warned_ || save <= 0 || step + save <= kGraceSeconds) return std::nullopt;
  has_warned_ = true;
  return fmt::format(
      "A step ({:.0f} s) and a save ({:.0f} s) take longer than the {:.0f} s that torchrun and most "
      "schedulers "
      "leave between SIGTERM and SIGKILL: a run that is preempted may lose what it did since the last save. "
      "Lengthen that time, ask earlier (SIGUSR1), or save more often.",
      step, save, kGraceSeconds);
}

}  // namespace milepost::train
