// Opening what the user named, with help when it is not a checkpoint.
#pragma once

#include <memory>
#include <string>

#include "milepost/engine/checkpoint.h"

namespace milepost::cli {

// Checkpoint::open. When there is no checkpoint at the path but step folders in it (or beside it, when the
// path names a step that does not exist), the StorageError kNotFound says which there are and which of them
// are complete.
std::shared_ptr<const Checkpoint> open_path(const std::string& path, int64_t rank = -1);

}  // namespace milepost::cli
