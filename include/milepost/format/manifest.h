// The hash manifest of a checkpoint folder (spec checkpoint-manager, section 13): SHA-256 of every file that
// lies directly in it, the two files named here excepted. This is its text; hashing files is the engine's
// (engine/manifest_files.h).
//
// Threads: free functions without shared state.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/base/checksum.h"

namespace milepost::manifest {

inline constexpr std::string_view kManifestName = "_checkpoint_hash_manifest.json";
// Lies beside the files while they are written; whoever finds it takes the manifest for incomplete. Content:
// "pending\n".
inline constexpr std::string_view kPendingName = "_checkpoint_hash_manifest.pending";

using Hashes = std::vector<std::pair<std::string, std::string>>;  // file name -> 64 lower-case hex digits,
                                                                  // sorted by name

// Indent 2, keys sorted, without a final newline: Python's json.dump(indent=2, sort_keys=True), whatever the
// order given. Throws CheckpointManifestError for a file name that is not UTF-8.
std::string write(const Hashes& hashes);

// Throws CheckpointManifestError (path): not JSON, a wrong or missing granularity or algorithm, no mapping of
// hashes, names twice or not plain names in the folder, digests that are not 64 hex digits. StorageError when
// the file cannot be read.
Hashes read(const ByteSource& file);

}  // namespace milepost::manifest
