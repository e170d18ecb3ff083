// Which errors of reading tell of the file, and which of the reader.
#pragma once

#include "milepost/base/error.h"

namespace milepost {

// Whether the file is as good as lost: the disk failed, or it is gone or of a broken file system. Others tell
// of this process (rights, descriptors), or may pass. Pure.
bool is_lasting(const StorageError& error);

}  // namespace milepost
