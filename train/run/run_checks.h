// What must hold before training starts, beyond what the configuration's own conditions say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "milepost/config/trainer.h"

namespace milepost::train {

// Sizes and frequencies that steps are counted by, the chunks of the loss, the profiler's schedule. Pure.
// Throws ValueError.
void check_settings(const config::Trainer& trainer);

// That the model is divided in ways that this version knows: by dp_shard and dp_replicate. Throws ValueError
// that names every other degree above 1.
void check_parallelism(const config::Parallelism& degrees);

// Makes `folder` (make_directories()) and a file in it, which is removed again. `what` is what an error calls
// it. Throws StorageError.
void check_writable(const std::string& folder, std::string_view what);

// check_writable() of the dump folder and, where the run saves, of the folder of its checkpoints. Throws
// ValueError for one that this version cannot reach.
void check_folders(const config::Trainer& trainer);

// The configuration of a run that saves a seed checkpoint (checkpoint.create_seed_checkpoint): the model is
// built on the CPU, by one process. Throws LaunchError with TorchTitan's AssertionErrors for several
// processes and for checkpoints that are off; ValueError where checkpoint.load_only would save nothing.
config::Trainer config_of_seed(config::Trainer trainer);

}  // namespace milepost::train
