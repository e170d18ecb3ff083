// What the ranks of a job tell each other when it ends early, by way of the job's store.
//
// A rank whose own work fails leaves its reason. A rank that fails because an operation with others did asks
// for that reason; where none comes, it names the ranks of the operation that leave no word either: those
// were killed, or hang. A thread on every rank looks for reasons, since the step thread may be waiting for
// ranks that are well.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/parallel/process_groups.h"

namespace milepost::train {

class FailureBoard {
 public:
  // Called on the watching thread with the reason that another rank left, where this rank has not failed by
  // itself a second later. It must end the process: the step thread may wait for a rank that is gone.
  using End = std::function<void(const std::string& reason)>;

  // Leaves the name of this rank's host for the others, and starts to watch. Throws CommunicationError.
  FailureBoard(std::shared_ptr<JobStore> store, int64_t rank, int64_t num_ranks, End end);
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

 private:
  struct Member;
  std::shared_ptr<Member> member_;  // shared with threads that may be given up
};

// This machine's name.
std::string host_name();

}  // namespace milepost::train
