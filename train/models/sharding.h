// Which part of each parameter a rank keeps.
#pragma once

#include "train/models/model.h"
#include "train/parallel/device_mesh.h"

namespace milepost::train {

// Sets mesh, rank and placements of every parameter as TorchTitan places them: dense parameters Shard(0) over
// dp_shard x cp, routed experts Shard(0), or Shard(1) where there are more ranks than experts; buffers
// replicated (spec parallelism, section 4). Call before Model::allocate().
void shard_parameters(Model& model, const DeviceMesh& mesh);

}  // namespace milepost::train
