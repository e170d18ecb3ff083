// Whether a run that is asked to stop has time to save (spec choices, signals).
#pragma once

#include <optional>
#include <string>

namespace milepost::train {

// torchrun ends the ranks that are left 30 s after their SIGTERM; Slurm (KillWait) and Kubernetes
// (terminationGracePeriodSeconds) do the same unless told otherwise.
inline constexpr double kGraceSeconds = 30;

class GracePeriod {
 public:
  // What to tell, once: that the step in progress and a save take longer than the grace period. `step` and
  // `save` are seconds; a save of 0 was not seen yet.
  std::optional<std::string> warning(double step, double save);

 private:
  bool has_warned_ = false;
};

}  // namespace milepost::train
