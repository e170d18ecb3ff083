#include "train/run/stop_point.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "train/run/log.h"

namespace milepost::train {
namespace {

constexpr int64_t kNoStep = -1;
constexpr int kFailed = 1, kSignal = 128;

}  // namespace

StopPoint::StopPoint() : thread_([this] { watch(); }) {}

StopPoint::~StopPoint() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = is_closing_ = true;
  }
  StopSignals::wake();
  thread_.join();
}

void StopPoint::join(FailureBoard& board) {
  const std::scoped_lock lock(mutex_);
  board_ = &board;
}

void StopPoint::begin(int64_t step) {
  std::unique_lock lock(mutex_);
  // Others may be at work already, so that this rank joins them for a step.
  if (is_agreeing_) changed_.wait(lock, [&] { return stop_.has_value() || is_over_; });
  last_sure_ = step;
}

int StopPoint::after(int64_t step) {
  std::unique_lock lock(mutex_);
  if (is_agreeing_) {
    changed_.wait(lock, [&] { return stop_.has_value() || is_over_; });
    if (stop_ && stop_->step <= step) return stop_->signal;
  }
  last_sure_ = step + 1;
  return 0;
}

int StopPoint::at_end_of_data() {
  std::unique_lock lock(mutex_);
  // A signal that has come is about to be agreed on.
  if (!is_agreeing_ && StopSignals::received() == 0) return 0;
  changed_.wait(lock, [&] { return stop_.has_value() || is_over_; });
  return stop_ ? stop_->signal : 0;
}

void StopPoint::end() {
  const std::scoped_lock lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void StopPoint::watch() {
  try {
    wait_and_agree();
  } catch (const std::exception& error) {
    // The thread that trains may wait for what will not come.
    log_error(fmt::format("Ending at once: the watch for signals failed: {}", error.what()));
    ::_exit(kFailed);
  }
}

void StopPoint::wait_and_agree() {
  for (;;) {
    StopSignals::wait();
    {
      const std::scoped_lock lock(mutex_);
      if (is_closing_) return;
      if (is_agreeing_ || (StopSignals::received() == 0 && board_ == nullptr)) continue;
    }
    agree();
  }
}

void StopPoint::agree() {
  FailureBoard* board = nullptr;
  FailureBoard::Stop own;
  {
    const std::scoped_lock lock(mutex_);
    is_agreeing_ = true;
    board = board_;
    own = {StopSignals::received(), last_sure_};
  }
  std::string fault;
  const std::optional<FailureBoard::Stop> stop = board == nullptr ? own : board->agree_on_stop(own, &fault);
  const std::scoped_lock lock(mutex_);
  if (is_over_) return;
  if (!stop) {
    log_error(fmt::format(
        "{}: ending at once, and nothing is saved: the ranks have not agreed on a step to stop after. {}",
        own.signal == 0 ? "Asked to stop" : StopSignals::name(own.signal), fault));
    ::_exit(kFailed);
  }
  if (stop->step == kNoStep) {
    log_warning(fmt::format("{}: stopped before the first step, with nothing to save",
                            StopSignals::name(stop->signal)));
    ::_exit(kSignal + stop->signal);
  }
  stop_ = stop;
  changed_.notify_all();
}

}  // namespace milepost::train
