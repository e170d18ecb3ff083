// The entry `milepost.run` of a checkpoint: which run wrote it (spec choices, "own keys").
#pragma once

#include <string>

#include "milepost/config/trainer.h"

namespace milepost::train {

// JSON: Milepost's version, the model, the mesh, and the configuration without paths, hosts and
// communication, so that equal runs write equal bytes wherever they run.
std::string run_record(const config::Trainer& config);

}  // namespace milepost::train
