// Pins: steps that nothing removes or replaces, whatever keep_latest_k says.
//
// A pin is an empty folder `milepost.pin` in the step's folder: manifests cover regular files only, readers
// of checkpoints open files by name, and StagedOutput replaces no folder that holds a stranger. It goes where
// the step is copied or moved to.
//
// Threads: any. Errors: StorageError.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "milepost/storage/storage.h"

namespace milepost::manager {

inline constexpr std::string_view kPinName = "milepost.pin";

// `step`: the step's folder; an absent one is not pinned.
bool is_pinned(const StorageLocation& step);
// Durability: after return it survives a power cut. Throws also ValueError when `step` is no folder named
// step-N that holds a checkpoint: retention may have been quicker. Else a step that it is about to remove
// stays; where it was out of its place at that moment, the error is kNotFound, although the pin may be set.
// Returns whether anything changed.
bool set_pin(const StorageLocation& step, bool pinned);
// Of the steps in `folder`, those that are pinned, ascending.
std::vector<int64_t> pinned_steps(const StorageLocation& folder);

}  // namespace milepost::manager
