// The hash manifest of a checkpoint folder (spec checkpoint-manager, section 13): SHA-256 of every file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/base/checksum.h"

namespace milepost::manifest {

inline constexpr std::string_view kManifestName = "_checkpoint_hash_manifest.json";
inline constexpr std::string_view kPendingName = "_checkpoint_hash_manifest.pending";  // content "pending\n"

using Hashes = std::vector<std::pair<std::string, std::string>>;  // file name -> 64 hex digits, sorted by name

std::string write(const Hashes& hashes);  // indent 2, keys sorted, as Python's json.dump(indent=2, sort_keys=True), without a final newline
// Throws CheckpointManifestError (path): not JSON, wrong granularity or algorithm, names that leave the folder, digests that are not 64 hex digits.
Hashes read(const ByteSource& file);

}  // namespace milepost::manifest
