// The protocol of staging.h, and why it is safe in the corners:
//
// 1. Only the holder of the lock touches anything in the staging folder, the lock file included. try_lock
//    makes sure that what was locked still lies at the path, so that nobody holds a lock that its former
//    holder has removed.
// 2. The staging folder may vanish between making it and locking in it, when its former holder finishes:
//    then again from the start. At the end it goes with remove_directory, which leaves it alone when the
//    next holder is already in.
// 3. Before anything is removed the parent is synced: what lies in staging may be the old output, which a
//    power cut would otherwise put back to the final name with its content gone.
// 4. The journal goes before `data` is published, and durably before an exchange: it must never lie beside an
//    old output that came into the place of `data`.
// 5. `settle_staging` alone decides what happens to what lies in staging: for a dead holder's debris, for a
//    failed commit and for a successful one.
// 6. An output that is moved aside takes its name with it, in the same rename, so that it can be put back by
//    who knows nothing but the staging folder.
// 7. What is to be removed is moved aside first and looked at there, where nothing can be put into it by its
//    name any more. Only then it becomes `removed`, durably before anything in it goes: else a power cut
//    could put half of it back.
#include "milepost/storage/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <thread>
#include <utility>

#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "storage/overwrite_guard.h"

namespace milepost {
namespace {

// Of one who takes the lock: whoever clears debris holds it for a moment, another writer for long.
constexpr std::chrono::seconds kLockPatience{1};
constexpr std::chrono::milliseconds kLockPause{5};
constexpr size_t kHashDigits = 16;
constexpr std::string_view kStagingPrefix = ".milepost-staging-";
constexpr std::string_view kLockName = "lock", kDataName = "data", kJournalName = "journal",
                           kRemovedName = "removed", kOldPrefix = "old-";

std::string staging_name(const std::string& final_name) {
  return std::string(kStagingPrefix) + to_hex(sha256(as_bytes(final_name))).substr(0, kHashDigits);
}

void sync_folders(Storage& storage, const std::string& folder) {
  for (const FileInfo& info : storage.list(folder)) {
    if (info.is_directory) sync_folders(storage, join_path(folder, info.name));
  }
  storage.sync_directory(folder);
}

// Where the output belongs that lies in a staging folder under this name; empty: it was not moved aside.
std::string place_of_moved(const std::string& folder, const std::string& name) {
  if (!name.starts_with(kOldPrefix)) return {};
  const std::string final_name = name.substr(kOldPrefix.size());
  return staging_name(final_name) == base_name(folder) ? join_path(parent_path(folder), final_name) : "";
}

// Puts the output back that was moved aside and whose place nothing took, then empties the staging folder of
// all but the lock and, with `keeps_data`, data and journal. Returns the place of what was put back; empty:
// nothing was.
std::string settle_staging(Storage& storage, const std::string& folder, bool keeps_data) {
  std::vector<FileInfo> entries = storage.list(folder);
  std::string put_back;
  std::erase_if(entries, [&](const FileInfo& entry) {
    const std::string place = place_of_moved(folder, entry.name);
    if (place.empty() || storage.stat(place)) return false;
    storage.rename(join_path(folder, entry.name), place);
    put_back = place;
    return true;
  });
  storage.sync_directory(parent_path(folder));
  const bool has_removed = std::any_of(entries.begin(), entries.end(),
                                       [](const FileInfo& entry) { return entry.name == kRemovedName; });
  if (has_removed) storage.sync_directory(folder);
  for (const FileInfo& entry : entries) {
    const bool is_kept = keeps_data && (entry.name == kDataName || entry.name == kJournalName);
    if (entry.name != kLockName && !is_kept) storage.remove_tree(join_path(folder, entry.name));
  }
  return put_back;
}

}  // namespace

struct StagedOutput::State {
  const std::shared_ptr<Storage> storage;
  const std::string final_path;
  const Kind kind;
  const bool overwrite;
  bool keeps_leftovers;
  const std::string parent = parent_path(final_path);
  const std::string folder = join_path(parent, staging_name(base_name(final_path)));
  const std::string lock_path = join_path(folder, kLockName);
  const std::string data_path = join_path(folder, kDataName);
  const std::string old_path = join_path(folder, std::string(kOldPrefix) + base_name(final_path));
  const std::string journal_path = join_path(folder, kJournalName);
  std::unique_ptr<FileLock> lock = nullptr;

  void take_lock();
  bool has_leftovers() const;
  void settle();
  void prepare() const;
  void leave();
  void finish();
  std::optional<FileInfo> check_final_name() const;
  void publish();
  std::optional<std::string> take_away() const;
};

void StagedOutput::State::take_lock() {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  do {
    storage->make_directory(folder);
    try {
      lock = storage->try_lock(lock_path);
      if (lock != nullptr) return;
      std::this_thread::sleep_for(kLockPause);
    } catch (const StorageError& error) {
      if (error.code() != ErrorCode::kNotFound) throw;  // else the folder went meanwhile
    }
  } while (std::chrono::steady_clock::now() < deadline);
  StorageError error(ErrorCode::kLocked, "another process is writing here", final_path);
  error.set_hint(fmt::format("wait until it is done or stop it (it holds {})", lock_path));
  throw error;
}

bool StagedOutput::State::has_leftovers() const {
  const std::optional<FileInfo> data = storage->stat(data_path), journal = storage->stat(journal_path);
  if (!data || !journal || !journal->is_regular) return false;
  return kind == Kind::kDirectory ? data->is_directory : data->is_regular;
}

void StagedOutput::State::settle() { settle_staging(*storage, folder, keeps_leftovers && has_leftovers()); }

void StagedOutput::State::prepare() const {
  if (kind == Kind::kDirectory) storage->make_directory(data_path);
}

// The lock file goes while it is locked: see 1 and 2. A folder with leftovers stays.
void StagedOutput::State::leave() {
  storage->remove_file(lock_path);
  storage->remove_directory(folder);
  lock = nullptr;
}

// What cannot be put right or removed now is left to the next StagedOutput.
void StagedOutput::State::finish() {
  try {
    settle();
    leave();
  } catch (const Error&) {
    lock = nullptr;
  }
}

// What is at the final name, if it may be replaced.
std::optional<FileInfo> StagedOutput::State::check_final_name() const {
  std::optional<FileInfo> there = storage->stat(final_path);
  if (!there) return there;
  if (!overwrite) {
    StorageError error(ErrorCode::kExists, "it exists already", final_path);
    error.set_hint("choose another name, or ask to overwrite it");
    throw error;
  }
  if (there->is_regular && is_checkpoint_file(*storage, final_path)) return there;
  ValueError error(there->is_regular ? "not overwritten: the file is no checkpoint"
                                     : "not overwritten: it is neither a file nor a folder",
                   "choose another name", ErrorCode::kExists);
  if (there->is_directory) {
    const std::optional<std::string> stranger = find_stranger(*storage, final_path);
    if (!stranger) return there;
    error = ValueError(fmt::format("not overwritten: the folder holds '{}', which is no part of a checkpoint",
                                   printable(*stranger)),
                       "choose another name, or remove the folder yourself", ErrorCode::kExists);
  }
  error.set_path(final_path);
  throw error;
}

void StagedOutput::State::publish() {
  const bool had_journal = storage->stat(journal_path).has_value();
  if (had_journal) {
    check_final_name();  // while the journal is there: who clears the name can go on from here
    storage->remove_file(journal_path);
  }
  if (kind == Kind::kDirectory) sync_folders(*storage, data_path);
  const std::optional<FileInfo> there = check_final_name();
  if (!there || (kind == Kind::kFile && there->is_regular)) {
    storage->rename(data_path, final_path);
  } else {
    if (had_journal) storage->sync_directory(folder);
    if (!storage->exchange(data_path, final_path)) {
      storage->rename(final_path, old_path);
      storage->rename(data_path, final_path);
    }
  }
  storage->sync_directory(parent);
}

// Returns the stranger for whose sake the output stays.
std::optional<std::string> StagedOutput::State::take_away() const {
  const std::optional<FileInfo> there = storage->stat(final_path);
  if (!there) return std::nullopt;
  storage->rename(final_path, old_path);
  std::optional<std::string> stranger;
  if (there->is_directory) stranger = find_stranger(*storage, old_path);
  if (stranger) {
    storage->rename(old_path, final_path);
    return stranger;
  }
  storage->rename(old_path, join_path(folder, kRemovedName));
  return std::nullopt;
}

std::optional<std::string> StagedOutput::remove(const std::shared_ptr<Storage>& storage,
                                                const std::string& final_path) {
  State state{storage, final_path, Kind::kDirectory, true, false};
  state.take_lock();
  std::optional<std::string> stranger;
  try {
    state.settle();
    stranger = state.take_away();
  } catch (const Error&) {
    state.finish();
    throw;
  }
  state.finish();
  return stranger;
}

StaleStaging settle_stale_staging(const std::shared_ptr<Storage>& storage, const std::string& folder) {
  StaleStaging done;
  for (const FileInfo& entry : storage->list(folder)) {
    const std::string path = join_path(folder, entry.name);
    if (!entry.is_directory || !entry.name.starts_with(kStagingPrefix)) continue;
    const std::string lock_path = join_path(path, kLockName);
    std::unique_ptr<FileLock> lock;
    try {
      lock = storage->try_lock(lock_path);
    } catch (const StorageError& error) {
      if (error.code() != ErrorCode::kNotFound) throw;  // its holder has just finished
    }
    if (lock == nullptr) continue;
    const std::string put_back = settle_staging(*storage, path, false);
    if (!put_back.empty()) done.put_back.push_back(put_back);
    storage->remove_file(lock_path);
    done.num_removed += storage->remove_directory(path) ? 1 : 0;
  }
  return done;
}

StagedOutput::StagedOutput(std::shared_ptr<Storage> storage, std::string final_path, Kind kind,
                           bool overwrite, Leftovers leftovers) {
  const std::string name = base_name(final_path);
  if (name.empty() || name == "." || name == "..") {
    throw ValueError(fmt::format("'{}' cannot be the name of an output", printable(final_path)),
                     "end the path in the name of the file or folder to make");
  }
  while (final_path.ends_with('/')) final_path.pop_back();
  state_ = std::make_unique<State>(std::move(storage), std::move(final_path), kind, overwrite,
                                   leftovers == Leftovers::kKeep);
  state_->take_lock();
  try {
    state_->settle();
    state_->check_final_name();
    state_->prepare();
  } catch (const Error&) {
    state_->finish();
    throw;
  }
}

StagedOutput::~StagedOutput() {
  if (state_->lock == nullptr) return;
  try {
    state_->finish();
  } catch (...) {  // PowerCut: nothing can be done any more
  }
}

const std::string& StagedOutput::path() const { return state_->data_path; }

const std::string& StagedOutput::journal_path() const { return state_->journal_path; }

void StagedOutput::discard_leftovers() {
  assert(state_->lock != nullptr);
  state_->storage->remove_file(state_->journal_path);
  state_->storage->remove_tree(state_->data_path);
  state_->prepare();
}

void StagedOutput::keep_when_abandoned(bool keep) { state_->keeps_leftovers = keep; }

void StagedOutput::commit() {
  assert(state_->lock != nullptr);
  try {
    state_->publish();
  } catch (const Error&) {
    state_->finish();
    throw;
  }
  state_->finish();
}

}  // namespace milepost
