// Folders that must be there before anything is written into them.
#pragma once

#include <string>

#include "milepost/storage/storage.h"

namespace milepost {

// Makes `path` and the missing folders above it. Durability: the name of each one that is made is on the disk
// when this returns, so that what is published in `path` later does not go with its folder in a power cut.
// Any thread, and several processes at once, may make the same folders. Throws StorageError (kExists or kIo
// where a file has one of the names); what has been made by then stays.
void make_directories(Storage& storage, const std::string& path);

}  // namespace milepost
