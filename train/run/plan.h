// A run that is only planned: its model is built without memory and told of.
#pragma once

#include "milepost/config/trainer.h"
#include "train/parallel/device_mesh.h"

namespace milepost::train {

// Logs the mesh, parameters and their layout on it, operations, memory of `mesh`'s rank and checkpoint size
// of what `config` would train; reads no data and writes nothing. Any degrees of parallelism. Throws
// ValueError for settings that training would refuse as well.
void show_plan(const config::Trainer& config, const DeviceMesh& mesh);

}  // namespace milepost::train
