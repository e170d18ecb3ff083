// Derived checkpoints: a checkpoint seen through a KeyMap.
//
// It is a Checkpoint like any other (open_file apart): TensorReader, load, diff, convert and reshard take it,
// and it may be the source of another one. Nothing is computed until an element is asked for.
//
// Threads, ownership: as Checkpoint; it shares its source. Cost of reading: that of the source, plus the
// arithmetic of the parts (TensorPart::Values). Memory of a reader: that of the source's reader and at most
// 1.5 MiB.
#pragma once

#include <memory>

#include "milepost/catalog/key_map.h"
#include "milepost/engine/checkpoint.h"

namespace milepost {

// Requires: parts name tensors of `source` whose shapes admit what the part says. Objects are left behind.
std::shared_ptr<const Checkpoint> derive(std::shared_ptr<const Checkpoint> source, KeyMap map);

}  // namespace milepost
