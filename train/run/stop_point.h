// The step after which a run stops because a signal asked for it (stop_signals.h).
//
// One process stops after the step in progress. Of several, the one that gets a signal tells the others, and
// they agree on a step (FailureBoard::agree_on_stop), all of it beside the thread that trains: a step may
// take long, and the ranks have 5 seconds. Where they do not agree, a rank is dead or hangs, and the others
// end at once. Before the first step there is nothing to save, and all end at once as well.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "train/parallel/failure_board.h"
#include "train/run/stop_signals.h"

namespace milepost::train {

// From construction to destruction signals are taken. At most one object at a time. Its thread ends the
// process where no step is to be waited for: with 128 + N for signal N before the first step, with 1 where
// the ranks do not agree. The functions are for the thread that trains.
class StopPoint {
 public:
  StopPoint();
  ~StopPoint();
  StopPoint(const StopPoint&) = delete;
  StopPoint& operator=(const StopPoint&) = delete;

  // The run is one of several ranks, who agree through `board`; it must outlive this, and call
  // StopSignals::wake where it sees another rank's wish.
  void join(FailureBoard& board);
  // `step` is the first; from now on it will be finished.
  void begin(int64_t step);
  // At the end of `step`: the signal that stops the run here, or 0, and the next step will be finished. Waits
  // where the ranks are agreeing.
  int after(int64_t step);
  // Where the data end, in place of after(): the signal that this rank knows of, or 0. Waits as after() does.
  // Others may know of one while this rank does not yet: the caller asks them all.
  int at_end_of_data();
  // No further step comes, whatever the ranks agree on.
  void end();

 private:
  void watch();
  void wait_and_agree();
  void agree();

  const StopSignals signals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  FailureBoard* board_ = nullptr;              // GUARDED_BY(mutex_)
  int64_t last_sure_ = -1;                     // GUARDED_BY(mutex_): this step will be finished
  bool is_agreeing_ = false;                   // GUARDED_BY(mutex_): once begun, for good
  bool is_over_ = false, is_closing_ = false;  // GUARDED_BY(mutex_)
  std::optional<FailureBoard::Stop> stop_;     // GUARDED_BY(mutex_)
  std::thread thread_;                         // last: it uses the others
};

}  // namespace milepost::train
