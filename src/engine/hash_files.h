// SHA-256 of many files at once.
#pragma once

#include <string>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/base/progress.h"
#include "milepost/storage/storage.h"

namespace milepost {

// The digest of each of `files`, which lie in `folder`. Largest first, so that no thread is left alone with a
// long one. Throws StorageError: of several files that cannot be read, the first in `files`.
std::vector<Sha256Digest> hash_files(Storage& storage, const std::string& folder,
                                     const std::vector<FileInfo>& files, int num_threads, Progress* progress);

}  // namespace milepost
