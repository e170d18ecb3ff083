// Integrity: whether the files of a checkpoint are what its manifest says (spec checkpoint-manager, section
// 13), found out by all ranks of a job together.
//
//   std::string own = inspect(folder, rank, num_ranks);       // each rank hashes its share of the files
//   Integrity all = judge(path, <every rank's, in order>);    // the same on every rank
//   if (!all.is_good(required)) throw refusal(path, all);
//
// Threads: any; inspect() runs a pool of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/storage/storage.h"

namespace milepost::manager {

struct Integrity {
  bool has_manifest = false;
  // Empty where all agree: "Checkpoint hash manifest verification failed for DIR:", and a line a file, with
  // the rank that found it where there are several; or that the manifest is unfinished or unreadable.
  std::string fault;
  std::string hint;
  bool is_damaged = false;            // the fault is that files are not what the manifest says
  bool ranks_disagree = false;        // ... that the ranks see different files; the checkpoint may be good
  std::vector<std::string> unlisted;  // files that the manifest does not list, which is no fault
  std::vector<std::string> unsure;    // of those, the ones that the checkpoint consists of
  int64_t files = 0, bytes = 0;       // hashed by all ranks

  // `required`: there must be a manifest, of everything that the checkpoint consists of.
  bool is_good(bool required) const {
    return fault.empty() && (!required || (has_manifest && unsure.empty()));
  }
};

// What this rank finds, for judge(). Damage and an unfinished manifest are findings, files that the disk does
// not give back included; throws StorageError where this process may not read, ValueError for a path that is
// no folder. Cost: the rank's share of the listed bytes is read and hashed, on all the cores that the process
// may use.
std::string inspect(const StorageLocation& folder, int64_t rank, int64_t num_ranks);

// Requires: what inspect() has returned on ranks 0, 1, ... for the folder `path`. Ranks that saw other files
// than the first one are a fault, since nobody may have hashed what those are. Throws FormatError for text
// that is not inspect()'s.
Integrity judge(const std::string& path, const std::vector<std::string>& findings);

// The error for what is not good, and the same in a few words: "it has no hash manifest".
CheckpointManifestError refusal(const std::string& path, const Integrity& integrity);
std::string brief(const Integrity& integrity);

}  // namespace milepost::manager
