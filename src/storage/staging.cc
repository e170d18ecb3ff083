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
// 5. `settle` alone decides what happens to what lies in staging: for a dead holder's debris, for a failed
//    commit and for a successful one.
#include "milepost/storage/staging.h"

#include <fmt/format.h>

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
constexpr std::string_view kLockName = "lock", kDataName = "data", kOldName = "old", kJournalName = "journal",
                           kRemovedName = "removed";

std::string staging_folder(const std::string& final_path) {
  const std::string hash = to_hex(sha256(as_bytes(base_name(final_path))));
  const std::string name = std::string(kStagingPrefix) + hash.substr(0, kHashDigits);
  return join_path(parent_path(final_path), name);
}

void sync_folders(Storage& storage, const std::string& folder) {
  for (const FileInfo& info : storage.list(folder)) {
    if (info.is_directory) sync_folders(storage, join_path(folder, info.name));
  }
  storage.sync_directory(folder);
}

}  // namespace

struct StagedOutput::State {
  const std::shared_ptr<Storage> storage;
  const std::string final_path;
  const Kind kind;
  const bool overwrite;
  bool keeps_leftovers;
  const std::string parent = parent_path(final_path);
  const std::string folder = staging_folder(final_path);
  const std::string lock_path = join_path(folder, kLockName);
  const std::string data_path = join_path(folder, kDataName);
  const std::string old_path = join_path(folder, kOldName);
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

// Puts the old output back where it was moved aside and nothing took its place, then empties the staging
// folder of all but what is kept.
void StagedOutput::State::settle() {
  if (storage->stat(old_path) && !storage->stat(final_path)) storage->rename(old_path, final_path);
  storage->sync_directory(parent);
  const bool keeps = keeps_leftovers && has_leftovers();
  for (const FileInfo& info : storage->list(folder)) {
    if (info.name == kLockName || (keeps && (info.name == kDataName || info.name == kJournalName))) continue;
    storage->remove_tree(join_path(folder, info.name));
  }
}

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

void StagedOutput::remove(const std::shared_ptr<Storage>& storage, const std::string& final_path) {
  State state{storage, final_path, Kind::kDirectory, true, false};
  state.take_lock();
  try {
    state.settle();
    if (storage->stat(final_path)) storage->rename(final_path, join_path(state.folder, kRemovedName));
  } catch (const Error&) {
    state.finish();
    throw;
  }
  state.finish();
}

int remove_stale_staging(const std::shared_ptr<Storage>& storage, const std::string& folder) {
  int removed = 0;
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
    if (lock == nullptr || storage->stat(join_path(path, kOldName))) continue;
    for (const FileInfo& inner : storage->list(path)) {
      if (inner.name != kLockName) storage->remove_tree(join_path(path, inner.name));
    }
    storage->remove_file(lock_path);
    removed += storage->remove_directory(path) ? 1 : 0;
  }
  return removed;
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
