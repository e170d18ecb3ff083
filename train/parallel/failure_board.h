// What the ranks of a job tell each other when it ends early, by way of the job's store.
//
// A rank whose own work fails leaves its reason. A rank that fails because an operation with others did asks
// for that reason; where none comes, it names the ranks of the operation that leave no word either: those
// were killed, or hang. A thread on every rank looks for reasons, since the step thread may be waiting for
// ranks that are well.
//
// A rank that is asked to stop leaves that wish in the same way, for the ranks to agree on a step to stop
// after:
//   1. the rank leaves the wish; the watch of every other rank sees it within half a second
//   2. each leaves the step that it will finish in any case
//   3. rank 0 leaves the last of these for all
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/parallel/process_groups.h"

namespace milepost::train {

class FailureBoard {
 public:
  // Called on the watching thread with the reason that another rank left, where this rank has not failed by
  // itself a second later. It must end the process: the step thread may wait for a rank that is gone. Never
  // called once the board's destructor has begun, which waits for a call under way. Must not use the board.
  using End = std::function<void(const std::string& reason)>;

  // Called on the watching thread, once, when some rank was asked to stop. Must not wait.
  using OnStopWish = std::function<void()>;

  // Leaves the name of this rank's host for the others, and starts to watch. Throws CommunicationError.
  FailureBoard(std::shared_ptr<JobStore> store, int64_t rank, int64_t num_ranks, End end,
               OnStopWish on_stop_wish = {});
  // Ends the watch.
  ~FailureBoard();
  FailureBoard(const FailureBoard&) = delete;
  FailureBoard& operator=(const FailureBoard&) = delete;

  // Those below wait for others, some seconds at most, even where the store does not answer, and throw
  // nothing. The process that serves the store goes last, so that the others can read it.

  // Tells the others that this rank fails, with `text` as its own reason.
  void fail(const std::string& text);
  // Tells the others that an operation among `ranks` failed here. Returns what failed first, a sentence for
  // the log.
  std::string fail_after_others(const std::vector<int64_t>& ranks);

  // Where a job stops early, and the signal that asked for it.
  struct Stop {
    int signal = 0;
    int64_t step = 0;
  };
  // What all ranks agree on: the last of the steps that they give, and the first signal. `own.signal` is 0
  // where another rank was asked. Each rank calls it once, on any thread. Where a rank, or the store, does
  // not answer within 5 seconds: nothing, and `fault` is a sentence that says who; the other ranks are told.
  std::optional<Stop> agree_on_stop(const Stop& own, std::string* fault);

 private:
  struct Member;
  std::shared_ptr<Member> member_;  // shared with threads that may be given up
};

// This machine's name.
std::string host_name();

}  // namespace milepost::train
