// SHA-256 of many files at once.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/base/progress.h"
#include "milepost/storage/storage.h"

namespace milepost {

struct HashedFile {
  Sha256Digest digest;
  std::exception_ptr failure;  // why it could not be read; null: it was, and the digest is its own
};
// Of each of `files`, which lie in `folder`. Largest first, so that no thread is left alone with a long one.
std::vector<HashedFile> hash_files(Storage& storage, const std::string& folder,
                                   const std::vector<FileInfo>& files, int num_threads, Progress* progress);

}  // namespace milepost
