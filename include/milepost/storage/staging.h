// Staging: how an output appears at its final name whole or not at all.
//
// 1. A folder `.milepost-staging-<hash of the final name>` is made beside the final name (never containing
//    "step-", which trainers search for), and `lock` in it is locked. If a live process holds the lock:
//    StorageError kLocked. What a dead one left is put right: an output that had been moved aside goes back
//    (see 3), all else is removed, unless it is to be continued: then `data` stays if a `journal` says which
//    parts of it are written.
// 2. The output is written at `path()`, which is `data` in the staging folder. Who wants to be able to go on
//    after an interruption writes a journal beside it.
// 3. commit() removes the journal, syncs the output's folders, then renames it to the final name. Over an
//    existing output the two names are exchanged, and the old one, now in staging, is removed afterwards; a
//    file over a file is a plain rename. Where the file system has no exchange: the old one is moved to
//    `old-<final name>` in staging, the new one renamed, the old one removed. Between these two renames
//    neither is at the final name; the next StagedOutput there, or settle_stale_staging(), moves it back. The
//    parent folder is synced before anything old is removed.
// 4. A kill at any point leaves the old state or the new one, and debris that the next StagedOutput at the
//    same final name, or settle_stale_staging(), removes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/storage/storage.h"

namespace milepost {

// Threads: one. Any number of processes and threads may have one each at different final names.
class StagedOutput {
 public:
  enum class Kind { kFile, kDirectory };
  // What becomes of data and journal that a dead holder left.
  enum class Leftovers { kRemove, kKeep };

  // The folder that holds `final_path` must exist. A link at `final_path` is itself replaced; what it names
  // stays.
  //
  // Throws StorageError: kLocked; kExists when something is at `final_path` and not `overwrite`; kNotFound
  // without the parent folder. ValueError kExists: with `overwrite`, an existing folder that holds anything
  // but files that a checkpoint has (names the first stranger), so that a slip cannot replace somebody's home
  // folder; likewise for a file that does not start as one of torch.save or safetensors does (an empty one
  // may go), and for what is neither file nor folder. ValueError kBadArgument: `final_path` ends in "." or
  // ".." or is "/". Leftovers kept stay after any of these.
  StagedOutput(std::shared_ptr<Storage> storage, std::string final_path, Kind kind, bool overwrite,
               Leftovers leftovers = Leftovers::kRemove);
  // Without commit(): removes the staging folder, ignoring errors, or leaves data and journal in it (see
  // keep_when_abandoned); the old state is intact.
  ~StagedOutput();
  StagedOutput(const StagedOutput&) = delete;
  StagedOutput& operator=(const StagedOutput&) = delete;

  // Where to write: the folder (exists), or the file (does not exist yet). Every file in it must have been
  // synced before commit(); commit() syncs the folders.
  const std::string& path() const;
  // The journal's place. A file that is there when the constructor returns was left by a dead holder together
  // with data of the right kind; what it says about them is for the caller to verify.
  const std::string& journal_path() const;

  // Removes data and journal, if any, and starts afresh: path() is as when nothing had been left.
  void discard_leftovers();

  // Whether data and journal shall stay when this is destroyed without commit(), for a later StagedOutput
  // with Leftovers::kKeep. At first: whether they were kept by this one. Without a journal nothing stays.
  void keep_when_abandoned(bool keep);

  // Publishes; may be called once. Looks at the final name again: the errors of the constructor apply. After
  // an exception the final name holds the old state or the new one, complete (the new one where only the sync
  // of the parent failed), and nothing can be continued. Failure to remove the old output is not an error;
  // the next run tries again. Durability: after return the output survives a power cut.
  void commit();

  // Removes a folder so that a kill at any point leaves it whole or gone, and what settle_stale_staging()
  // puts right. As with `overwrite`, one that holds anything but files that a checkpoint has stays: returns
  // the first stranger. That is looked for once the folder is out of its place, so that no stranger comes too
  // late: who puts one in finds it kept, or no folder. Absent: no error.
  //
  // Throws StorageError, kLocked when another process writes there. Holds the lock until all is removed.
  static std::optional<std::string> remove(const std::shared_ptr<Storage>& storage,
                                           const std::string& final_path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct StaleStaging {
  int num_removed = 0;                // staging folders
  std::vector<std::string> put_back;  // outputs that had been moved aside (see 3), by their final paths
};
// Puts right what dead processes left in the staging folders in `folder`, whatever their final names: before
// anything is looked for there. Those that live processes hold stay. Throws StorageError.
StaleStaging settle_stale_staging(const std::shared_ptr<Storage>& storage, const std::string& folder);

}  // namespace milepost
