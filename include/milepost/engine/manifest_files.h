// Manifests of checkpoint folders: writing and checking the SHA-256 of every file, hashed in parallel (spec checkpoint-manager, section 13).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/progress.h"
#include "milepost/format/manifest.h"

namespace milepost {

struct ManifestOptions {
  int num_threads = 0;
  bool direct_io = false;
  Progress* progress = nullptr;
};

// SHA-256 of every regular file directly in `folder` but the manifest and its pending marker; four files at a time on a core.
manifest::Hashes hash_folder(std::string_view folder, const ManifestOptions& options);

// Hashes and writes the manifest (temporary file, sync, rename, sync of the folder), then removes a pending marker. Returns the hashes.
manifest::Hashes write_manifest(std::string_view folder, const ManifestOptions& options);

struct ManifestCheck {
  bool present = false;                     // false: no manifest, nothing was checked
  std::vector<std::string> mismatched;      // "name: hash mismatch (expected 0123456789abcdef..., got ...)"
  std::vector<std::string> missing, extra;  // files listed but absent; files present but not listed (no fault by the specification)
  int64_t files = 0, bytes = 0;
  bool good() const { return present && mismatched.empty() && missing.empty(); }
};
// Throws CheckpointManifestError when the manifest is unreadable or the pending marker is there ("incomplete").
ManifestCheck check_manifest(std::string_view folder, const ManifestOptions& options);

}  // namespace milepost
