// Which checkpoint a job begins with: chosen, present, the same on all ranks, and what its manifest says.
#pragma once

#include <string>
#include <vector>

#include "milepost/config/trainer.h"
#include "milepost/manager/start.h"
#include "train/state/job.h"
#include "train/state/together.h"

namespace milepost::train {

// All ranks together; `step` as Checkpointer::load() has it, `parts`: of manager::kStateParts that the job
// resumes. Tells the log what was chosen and why, and the run's events of a verification.
//
// With extensions.verify_hash_manifest, whatever is to be loaded is hashed first, by all ranks together, and
// damage that one finds is thrown on all of them (CheckpointManifestError); with fallback_to_older, the
// newest older step of the own folder is taken instead, unless `step` names one. Throws as choose_start(),
// choose_named_step() and require_present() do; StorageError where this process may not read; ValueError
// where ranks see other folders.
manager::Start find_start(const config::Trainer& config, const Job& job,
                          const std::vector<std::string>& parts, int64_t step, const Together& ranks,
                          const LogLine& log);

}  // namespace milepost::train
