// Filling a job from a checkpoint: everything is compared and decoded first, then loaded. All ranks together:
// an error on one is an error on all, and what several want is read once (read_sharing.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/engine/checkpoint.h"
#include "milepost/engine/ema.h"
#include "milepost/engine/model.h"
#include "milepost/flavor/flavor.h"
#include "milepost/manager/policy.h"
#include "train/state/job.h"

namespace milepost::train {

// Loads the model and `parts` (of manager::kStateParts; none: the model alone) of a DCP checkpoint, and into
// job.ema the `average` of it, where one is given. Returns what the log should say. Errors: see
// Checkpointer::load. Where the job has a part that is left out, it stays as it is.
std::vector<manager::Message> load_job(const std::shared_ptr<const Checkpoint>& checkpoint,
                                       const std::vector<std::string>& parts, const Job& job,
                                       const std::optional<EmaCopy>& average = std::nullopt);

// Loads job.model under either side's names, codes of block quantisation included. `is_quantised` refuses or
// admits those (ValueError), as TorchTitan's flag does; nullopt: either. Throws also what as_native() throws.
std::vector<manager::Message> load_model(const std::shared_ptr<const Checkpoint>& checkpoint,
                                         const flavor::Model& dims, std::optional<bool> is_quantised,
                                         const Job& job);

}  // namespace milepost::train
