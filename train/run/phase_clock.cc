#include "train/run/phase_clock.h"

namespace milepost::train {
namespace {

double seconds_since(PhaseClock::Clock::time_point start) {
  return std::chrono::duration<double>(PhaseClock::Clock::now() - start).count();
}

}  // namespace

PhaseClock::Range::Range(PhaseClock& clock, Phase phase)
    : clock_(clock), phase_(phase), start_(Clock::now()) {
  const std::string_view name = kPhaseNames[static_cast<size_t>(phase)];
  clock_.latest_ = name.data();
  if (clock_.on_phase_) clock_.on_phase_(clock_.step_, name);
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return;
  record_.emplace(std::move(*callbacks));
  record_->before(name.data());
}

PhaseClock::Range::~Range() { clock_.seconds_[static_cast<size_t>(phase_)] += seconds_since(start_); }

void PhaseClock::begin_step(int64_t step) {
  step_ = step;
  seconds_ = {};
  start_ = Clock::now();
}

double PhaseClock::total_seconds() const { return seconds_since(start_); }

double PhaseClock::training_seconds() const {
  return total_seconds() - seconds(Phase::kStaging) - seconds(Phase::kCheckpoint) -
         seconds(Phase::kValidation);
}

}  // namespace milepost::train
