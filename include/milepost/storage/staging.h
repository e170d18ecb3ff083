// Staging: how an output appears at its final name whole or not at all.
//
// 1. A folder `.milepost-staging-<hash of the final name>` is made beside the final name (never containing "step-", which trainers search for), and a lock file in it
//    is taken. If a live process holds the lock: StorageError(kLocked). Content left by a dead one is debris and removed first.
// 2. The output is written below `path()`.
// 3. commit(): syncs files' folder, then renames it to the final name; over an existing output the two names are exchanged and the old one is removed afterwards. Where the file
//    system has no exchange: the old one is moved into staging, the new one renamed, the old one removed (between the two renames neither is at the final name; the next run
//    moves the old one back). The parent folder is synced last.
// 4. A kill at any point leaves the old state or the new one, and debris that the next StagedOutput at the same final name removes.
#pragma once

#include <memory>
#include <string>

#include "milepost/storage/storage.h"

namespace milepost {

class StagedOutput {
 public:
  enum class Kind { kFile, kDirectory };

  // Throws StorageError: kExists when `final_path` exists and not `overwrite`; kLocked. With `overwrite`, an existing folder is only accepted when it holds nothing but
  // files that a checkpoint holds (ValueError kExists names the first stranger), so that a slip cannot replace somebody's home folder.
  StagedOutput(std::shared_ptr<Storage> storage, std::string final_path, Kind kind, bool overwrite);
  // Without commit(): removes the staging folder, ignoring errors; the old state is intact.
  ~StagedOutput();
  StagedOutput(const StagedOutput&) = delete;
  StagedOutput& operator=(const StagedOutput&) = delete;

  // Where to write: the folder (exists), or the file (does not exist yet). Every file in it must have been synced before commit().
  const std::string& path() const;
  // Publishes. After an exception the final name holds the old state or the new one, complete.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace milepost
