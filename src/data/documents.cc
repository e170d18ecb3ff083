#include "milepost/data/documents.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "data/record_files.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

constexpr int64_t kIdentityBytes = 64 << 10;
constexpr int kMaxDepth = 16;

bool has_data_name(std::string_view name) {
  if (name.starts_with('.') || name.starts_with('_')) return false;
  for (std::string_view packed : {".gz", ".zst"}) {
    if (name.ends_with(packed)) {
      name.remove_suffix(packed.size());
      return name.ends_with(".json") || name.ends_with(".jsonl") || name.ends_with(".ndjson");
    }
  }
  constexpr std::array<std::string_view, 4> kNames{".json", ".jsonl", ".ndjson", ".parquet"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view end) { return name.ends_with(end); });
}

void find_below(Storage& storage, const std::string& folder, int depth, std::vector<std::string>* files) {
  for (const FileInfo& info : storage.list(folder)) {
    const std::string path = join_path(folder, info.name);
    if (info.is_directory && !info.name.starts_with('.') && depth < kMaxDepth) {
      find_below(storage, path, depth + 1, files);
    } else if (info.is_regular && has_data_name(info.name)) {
      files->push_back(path);
    }
  }
}

std::string default_spool_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder && *folder ? folder : "/tmp";
}

std::unique_ptr<RecordFile> open_file(const std::shared_ptr<Storage>& storage, const std::string& path,
                                      const DocumentOptions& options) {
  if (path.ends_with(".parquet")) {
    return open_parquet(path, options.text_field, storage, options.spool_folder);
  }
  std::shared_ptr<const ByteSource> bytes = storage->open_read(path);
  if (path.ends_with(".gz")) {
    Spool spool(storage, options.spool_folder);
    bytes = unpack_gzip(*bytes, spool);
  } else if (path.ends_with(".zst")) {
    Spool spool(storage, options.spool_folder);
    bytes = unpack_zstd(*bytes, spool);
  }
  return open_json_lines(std::move(bytes), path, options.text_field);
}

// Size and first bytes: enough to tell data sets apart, at the cost of one read a file.
std::string file_identity(Storage& storage, const std::string& path) {
  const std::unique_ptr<ByteSource> source = storage.open_read(path);
  ByteVector first(static_cast<size_t>(std::min(source->size(), kIdentityBytes)));
  if (!first.empty()) source->read_at(0, first);
  return std::to_string(source->size()) + " " + std::to_string(crc32(0, first)) + "\n";
}

std::string digest(const std::string& text) { return to_hex(sha256(as_bytes(text))).substr(0, 32); }

}  // namespace

std::vector<std::string> find_data_files(Storage& storage, const std::string& path,
                                         const std::string& prefix) {
  const std::optional<FileInfo> info = storage.stat(path);
  if (!info) throw StorageError(ErrorCode::kNotFound, "no such file or folder of documents", path);
  if (!info->is_directory) return {path};
  std::vector<std::string> files;
  find_below(storage, path, 0, &files);
  if (files.empty()) {
    ValueError error(
        "no data files in this folder (want *.json, *.jsonl or *.ndjson, also .gz or .zst, or *.parquet)",
        "name the folder or file that holds them with --dataloader.dataset-path", ErrorCode::kNotFound);
    error.set_path(path);
    throw error;
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> chosen;
  std::copy_if(files.begin(), files.end(), std::back_inserter(chosen),
               [&](const std::string& file) { return base_name(file).starts_with(prefix); });
  return chosen.empty() ? files : chosen;
}

Documents::Documents(std::shared_ptr<Storage> storage, std::vector<std::string> files,
                     DocumentOptions options)
    : paths_(std::move(files)) {
  if (options.spool_folder.empty()) options.spool_folder = default_spool_folder();
  std::string identity = options.text_field + "\n", key = identity;
  for (const std::string& path : paths_) {
    files_.push_back(open_file(storage, path, options));
    first_of_file_.push_back(first_of_file_.back() + files_.back()->size());
    const std::string of_file = file_identity(*storage, path);
    const std::optional<FileInfo> info = storage->stat(path);
    identity += of_file;
    key += base_name(path) + " " + std::to_string(info ? info->modified_ns : 0) + " " + of_file;
  }
  fingerprint_ = digest(identity);
  cache_key_ = digest(key);
}

Documents::~Documents() = default;

std::vector<int64_t> Documents::file_documents() const {
  std::vector<int64_t> counts;
  for (const std::unique_ptr<RecordFile>& file : files_) counts.push_back(file->size());
  return counts;
}

Documents::Position Documents::position(int64_t document) const {
  const auto after = std::upper_bound(first_of_file_.begin(), first_of_file_.end(), document);
  return {static_cast<size_t>(after - first_of_file_.begin() - 1), document - *(after - 1)};
}

void Documents::read(int64_t document, std::string* text) {
  const Position at = position(document);
  files_[at.file]->read(at.record, text);
}

std::string Documents::place(int64_t document) const {
  const Position at = position(document);
  return paths_[at.file] + ": " + files_[at.file]->record_name(at.record);
}

}  // namespace milepost::data
