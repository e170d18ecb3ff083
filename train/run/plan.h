// A run that is only planned: its model is built without memory and told of.
#pragma once

#include <cstdint>

#include "milepost/config/trainer.h"

namespace milepost::train {

// Logs parameters, operations, memory and checkpoint size of what `config` would train; reads no data and
// writes nothing. `data_world`: ranks that would take different data. Throws ValueError for settings that
// training would refuse as well, but for degrees of parallelism.
void show_plan(const config::Trainer& config, int64_t data_world);

}  // namespace milepost::train
