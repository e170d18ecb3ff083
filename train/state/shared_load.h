// Loads of a job: each rank reads what it alone wants; what a group of ranks wants is read once by them
// together, each an equal part, and told to the others (read_sharing.h decides).
//
// Memory: at most 48 MiB of buffers, whatever the sizes. Threads: the one that issues the job's collectives.
#pragma once

#include <string>
#include <vector>

#include "milepost/engine/load.h"
#include "train/parallel/process_groups.h"
#include "train/state/read_sharing.h"

namespace milepost::train {

struct SharedLoadReport {
  int64_t bytes_read = 0;      // that this rank asked the storage for
  int64_t bytes_received = 0;  // of what other ranks have read, as they lie in memory
};

// Carries out a load, all ranks together, each with its own list. An error on any of them is thrown on all
// that share with it, after all reading has ended, as a CommunicationError that repeats it (path included);
// the rank itself throws what it was. Throws CommunicationError also where a rank is gone.
// `groups` may be null where nothing is shared.
SharedLoadReport carry_out(LoadPlan& plan, const std::vector<SharedPieces>& shared, ProcessGroups* groups);

}  // namespace milepost::train
