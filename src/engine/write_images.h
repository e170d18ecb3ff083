// Carrying out FileImages: the one place where output bytes are made, checksummed and written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/journal.h"
#include "engine/payloads.h"
#include "milepost/base/checksum.h"
#include "milepost/base/progress.h"
#include "milepost/engine/save.h"
#include "milepost/format/file_image.h"
#include "milepost/storage/storage.h"

namespace milepost {

struct OutputFile {
  std::unique_ptr<const FileImage> image;
  std::vector<PayloadRef> payloads;       // by payload index of the image
  const PayloadSource* source = nullptr;  // outlives the writing
};

// Bytes of buffers that write_images takes at most for these options.
int64_t write_buffer_bytes(const WriteOptions& options);

// Writes `paths[i]` from `files[i]` for all i, in parallel over blocks, each synced when options.sync. Bytes
// pass through one buffer a worker, or none where source and destination are memory. Throws the first error
// in file order; what was written so far stays as debris of the staging folder. Cancelled by
// options.progress. With options.hash_files, returns the SHA-256 of each file, computed from the bytes as
// they pass; four files or more that lie side by side in `files` and are of like sizes are hashed three times
// as fast as one. Otherwise returns nothing.
//
// With a journal, each block is recorded there when it is written, and blocks that it has a record of are
// read back: those found as recorded are kept. Their files must not have changed but by write_images.
std::vector<Sha256Digest> write_images(Storage& storage, const std::vector<std::string>& paths,
                                       const std::vector<OutputFile>& files, const WriteOptions& options,
                                       Journal* journal = nullptr);

}  // namespace milepost
