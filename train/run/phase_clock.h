// Where the time of a step goes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "train/torch.h"

namespace milepost::train {

enum class Phase : uint8_t { kData, kForward, kBackward, kOptimizer, kCheckpoint, kValidation, kLog };
inline constexpr std::string_view kPhaseNames[] = {"data",       "forward",    "backward", "optimizer",
                                                   "checkpoint", "validation", "log"};
inline constexpr size_t kNumPhases = std::size(kPhaseNames);

// Seconds of each phase since the last begin_step(). One thread.
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes time for a phase while it lives, and is a range of that name in a profiler's trace. Ranges do not
  // nest.
  class Range {
   public:
    Range(PhaseClock& clock, Phase phase);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    PhaseClock& clock_;
    Phase phase_;
    Clock::time_point start_;
    std::optional<at::RecordFunction> record_;
  };

  void begin_step();
  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }
  // The phase in progress, or the last one: what a failure happened in.
  std::string_view latest() const { return latest_; }
  // Since begin_step(), whatever it was spent on.
  double total_seconds() const;
  // Without what belongs to no step in itself: checkpoints and validation.
  double training_seconds() const;

 private:
  Clock::time_point start_ = Clock::now();
  std::array<double, kNumPhases> seconds_ = {};
  std::string_view latest_ = "start";
};

}  // namespace milepost::train
