// Loads of a job: each rank reads what it alone wants; what a group of ranks wants is read once by them
// together, each an equal part, and told to the others (read_sharing.h decides).
//
// Memory: at most 48 MiB of buffers, whatever the sizes. Threads: the one that issues the job's collectives.
#pragma once

#include <memory>
#include <vector>

#include "milepost/engine/load.h"
#include "train/parallel/process_groups.h"
#include "train/state/read_sharing.h"

namespace milepost::train {

struct SharedLoadReport {
  int64_t bytes_read = 0;      // that this rank asked the storage for
  int64_t bytes_received = 0;  // of what other ranks have read, as they lie in memory
};

class SharedLoad {
 public:
  // Takes all memory that the load needs, and tells nobody: all ranks have to know that all are ready before
  // any goes on. `plan` and `groups` must outlive this; `groups` may be null where nothing is shared.
  SharedLoad(LoadPlan& plan, const std::vector<SharedPieces>& shared, ProcessGroups* groups);
  ~SharedLoad();

  // Carries it out, once, all ranks together, each with its own list. An error on any of them is thrown on
  // all that share with it, after all reading has ended, as a CommunicationError that repeats it (path
  // included); the rank itself throws what it was. Throws CommunicationError also where a rank is gone.
  SharedLoadReport carry_out();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace milepost::train
