// Which part of each parameter a rank keeps.
#pragma once

#include "train/models/model.h"
#include "train/parallel/device_mesh.h"

namespace milepost::train {

// Sets mesh, rank and placements of every parameter as TorchTitan places them (spec parallelism, section 4):
// rows over dp_shard x cp; matrices over tp, by rows or by columns; routed experts by expert over ep, and
// over what the experts' mesh leaves by expert or, where there are more ranks than experts, by the next
// dimension; buffers whole on every rank. Stages of pp hold their layers in this way. Call before
// Model::allocate().
void shard_parameters(Model& model, const DeviceMesh& mesh);

}  // namespace milepost::train
