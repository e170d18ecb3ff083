// What must hold before training starts, beyond what the configuration's own conditions say.
#pragma once

#include <cstdint>
#include <string>

#include "milepost/config/trainer.h"

namespace milepost::train {

// Sizes and frequencies that steps are counted by, the chunks of the loss, the profiler's schedule. Pure.
// Throws ValueError.
void check_settings(const config::Trainer& trainer);

// That the model is divided in ways that this version knows: by dp_shard and dp_replicate. Throws ValueError
// that names every other degree above 1.
void check_parallelism(const config::Parallelism& degrees);

// Makes `folder` and a file in it, which is removed again. Throws StorageError.
void check_writable(const std::string& folder);

}  // namespace milepost::train
