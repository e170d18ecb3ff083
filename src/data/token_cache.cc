#include "milepost/data/token_cache.h"

#include <algorithm>
#include <utility>

#include "data/token_file.h"
#include "milepost/base/error.h"
#include "milepost/storage/directories.h"

namespace milepost::data {
namespace {

constexpr size_t kMaxOpenFiles = 64;
constexpr int64_t kMaxNarrowVocabulary = 65536;
constexpr size_t kMaxWarnings = 10;

}  // namespace

// Locked by its own name while it is written, so that no two processes encode the same documents and what a
// killed one left is written over.
struct TokenCache::Draft {
  int64_t file;
  std::string path;
  std::unique_ptr<FileLock> lock;
  TokenFileWriter writer;
};

TokenCache::TokenCache(std::shared_ptr<Storage> storage, const std::string& folder,
                       std::unique_ptr<EncodingSource> source)
    : storage_(std::move(storage)),
      source_(std::move(source)),
      key_(source_->cache_key()),
      id_bytes_(source_->vocab_size() <= kMaxNarrowVocabulary ? 2 : 4),
      checked_(static_cast<size_t>(num_files())) {
  folder_ = join_path(folder, key_);
  make_directories(*storage_, folder_);
}

TokenCache::~TokenCache() = default;

int64_t TokenCache::num_files() const { return (size() + kFileDocuments - 1) / kFileDocuments; }

std::string TokenCache::path(int64_t file) const {
  std::string number = std::to_string(file);
  number.insert(0, 8 - std::min<size_t>(8, number.size()), '0');
  return join_path(folder_, number + ".tokens");
}

TokenFileIdentity TokenCache::identity(int64_t file) const {
  const int64_t first = file * kFileDocuments;
  return {.key = key_,
          .first_document = first,
          .num_documents = std::min(kFileDocuments, size() - first),
          .id_bytes = id_bytes_};
}

TokenFile* TokenCache::open(int64_t file) {
  if (const auto found = where_.find(file); found != where_.end()) {
    opened_.splice(opened_.begin(), opened_, found->second);
    return opened_.front().second.get();
  }
  const std::string name = path(file);
  if (!storage_->stat(name)) return nullptr;
  std::unique_ptr<TokenFile> opened;
  try {
    opened = std::make_unique<TokenFile>(storage_->open_read(name), identity(file),
                                         !checked_[static_cast<size_t>(file)]);
  } catch (const FormatError& error) {
    if (warnings_.size() < kMaxWarnings) warnings_.push_back(error.what());
    storage_->remove_file(name);
    return nullptr;
  }
  checked_[static_cast<size_t>(file)] = true;
  if (opened_.size() >= kMaxOpenFiles) {
    where_.erase(opened_.back().first);
    opened_.pop_back();
  }
  opened_.emplace_front(file, std::move(opened));
  where_[file] = opened_.begin();
  return opened_.front().second.get();
}

bool TokenCache::start_draft(int64_t file) {
  if (draft_ && draft_->file == file) return true;
  draft_.reset();
  const std::string name = path(file) + ".draft";
  std::unique_ptr<FileLock> lock = storage_->try_lock(name);
  if (!lock) return false;
  draft_.reset(new Draft{file, name, std::move(lock), TokenFileWriter(*storage_, name, identity(file))});
  return true;
}

// The width of stored ids rests on what the tokenizer says of itself.
void TokenCache::check_ids() const {
  for (int32_t id : ids_) {
    if (id >= 0 && id < source_->vocab_size()) continue;
    ValueError error("the tokenizer gave token id " + std::to_string(id) + ", beyond its own vocabulary of " +
                         std::to_string(source_->vocab_size()),
                     "check that the files of the tokenizer belong together", ErrorCode::kOutOfBounds);
    error.set_path(source_->place(draft_->file * kFileDocuments + draft_->writer.num_documents()));
    throw error;
  }
}

void TokenCache::extend_draft(int64_t num_documents) {
  TokenFileWriter& writer = draft_->writer;
  while (writer.num_documents() < num_documents) {
    ids_.clear();
    const int64_t num_skipped = source_->num_skipped();
    source_->append(draft_->file * kFileDocuments + writer.num_documents(), &ids_);
    last_is_bad_ = source_->num_skipped() != num_skipped;
    check_ids();
    writer.add(ids_, last_is_bad_);
  }
  if (!writer.is_full()) return;
  writer.finish();
  storage_->rename(draft_->path, path(draft_->file));
  draft_.reset();
}

void TokenCache::append(int64_t document, std::vector<int32_t>* ids) {
  const int64_t file = document / kFileDocuments, at = document % kFileDocuments;
  TokenFile* opened = draft_ && draft_->file == file ? nullptr : open(file);
  if (!opened && start_draft(file)) {
    if (at >= draft_->writer.num_documents()) {
      extend_draft(at + 1);
      ids->insert(ids->end(), ids_.begin(), ids_.end());
      num_skipped_ += last_is_bad_ ? 1 : 0;
      return;
    }
    // Going back means that documents come out of order, so that all of the file will be wanted.
    extend_draft(identity(file).num_documents);
    opened = open(file);
  }
  if (opened) {
    if (!opened->read(at, ids)) ++num_skipped_;
    return;
  }
  // Another process is making this file.
  const int64_t num_skipped = source_->num_skipped();
  source_->append(document, ids);
  num_skipped_ += source_->num_skipped() - num_skipped;
}

std::optional<int64_t> TokenCache::count(int64_t document) {
  const int64_t file = document / kFileDocuments;
  const TokenFile* opened = draft_ && draft_->file == file ? nullptr : open(file);
  if (!opened) return std::nullopt;
  return opened->count(document % kFileDocuments);
}

void TokenCache::build() {
  for (int64_t file = 0; file < num_files(); ++file) {
    if (!open(file) && start_draft(file)) extend_draft(identity(file).num_documents);
  }
}

std::vector<std::string> TokenCache::take_warnings() {
  std::vector<std::string> all = source_->take_warnings();
  for (std::string& warning : std::exchange(warnings_, {})) all.push_back(std::move(warning));
  return all;
}

}  // namespace milepost::data
