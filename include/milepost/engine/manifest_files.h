// Manifests of checkpoint folders: writing and checking the SHA-256 of every file, hashed in parallel (spec
// checkpoint-manager, section 13).
//
// Covered are the regular files directly in the folder, `.metadata` included; the manifest itself and its
// pending marker are not, nor is anything in subfolders. Threads: each call runs a pool of its own. Errors:
// StorageError for what cannot be listed, read or written (of several unreadable files the first by name);
// ValueError for a path that is no folder; Error(kIo, "cancelled").
//
// Cost: a thread hashes up to four files at once, since four interleaved streams run about three times as
// fast as one; a single large file is bound to the speed of one stream. Memory: 512 KiB a thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "milepost/base/progress.h"
#include "milepost/format/manifest.h"
#include "milepost/storage/storage.h"

namespace milepost {

struct ManifestOptions {
  int num_threads = 0;           // 0: default_num_threads()
  Progress* progress = nullptr;  // counts bytes of files
  // check_manifest: of processes that check one folder together, which this is. Each hashes its share of the
  // files, about as many bytes as the others; names are compared by all.
  int64_t share = 0, num_shares = 1;
};

// The hash of every covered file, sorted by name.
manifest::Hashes hash_folder(const StorageLocation& folder, const ManifestOptions& options);

// Hashes and writes the manifest, then removes a pending marker. Returns what the manifest now says.
// Durability: temporary file, sync, rename, sync of the folder; a reader never sees half a manifest.
manifest::Hashes write_manifest(const StorageLocation& folder, const ManifestOptions& options);

// For who hashes files as they are written, into a folder that is not published yet. Durability: these are
// synced, the folder is not.
//
// Lays the pending marker down, before the first file.
void mark_pending(Storage& storage, const std::string& folder);
// Writes the manifest, then removes the marker. Throws also what manifest::write() throws.
void publish_manifest(Storage& storage, const std::string& folder, const manifest::Hashes& hashes);

// What a check found. Extra files are no fault by the specification: the manifest does not forbid to add a
// README.
struct ManifestCheck {
  bool present = false;  // false: there is no manifest and nothing was checked
  // "name: hash mismatch (expected 0123456789abcdef..., got ...)", "name: cannot be read (...)"
  std::vector<std::string> mismatched;
  std::vector<std::string> missing;  // listed but absent
  std::vector<std::string> extra;    // present but not listed
  int64_t files = 0, bytes = 0;      // of this share
  // Of the listed files that are there, those of other shares included: processes whose listings are equal
  // have cut the same files into shares.
  struct Listing {
    int64_t files = 0, bytes = 0;
    std::string digest;  // of the names and sizes
  };
  Listing listing;
  bool good() const { return present && mismatched.empty() && missing.empty(); }
};

// Hashes the listed files again. A file that the disk does not give back (is_lasting(), storage/lasting.h) is
// damage. Throws CheckpointManifestError when the manifest is unreadable or the pending marker is there (the
// save or the hashing of this folder did not finish).
ManifestCheck check_manifest(const StorageLocation& folder, const ManifestOptions& options);

}  // namespace milepost
