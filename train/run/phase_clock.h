// Where the time of a step goes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "train/torch.h"

namespace milepost::train {

enum class Phase : uint8_t {
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kStaging,
  kCheckpoint,
  kValidation,
  kLog
};
inline constexpr std::string_view kPhaseNames[] = {"data",    "forward",    "backward",   "optimizer",
                                                   "staging", "checkpoint", "validation", "log"};
inline constexpr size_t kNumPhases = std::size(kPhaseNames);

// Seconds of each phase since the last begin_step(). One thread, but for step() and latest().
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

  // What happens where a phase begins, after latest() tells of it.
  using OnPhase = std::function<void(int64_t step, std::string_view phase)>;
  void on_phase(OnPhase on_phase) { on_phase_ = std::move(on_phase); }

  void begin_step(int64_t step);
  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }
  // The step and the phase in progress, or the last ones: where a failure happened.
  int64_t step() const { return step_; }
  std::string_view latest() const { return latest_.load(); }
  // Since begin_step(), whatever it was spent on.
  double total_seconds() const;
  // Without what belongs to no step in itself: checkpoints, their staging, and validation.
  double training_seconds() const;

 private:
  Clock::time_point start_ = Clock::now();
  std::array<double, kNumPhases> seconds_ = {};
  std::atomic<int64_t> step_ = 0;
  std::atomic<const char*> latest_ = "start";
  OnPhase on_phase_;
};

}  // namespace milepost::train
