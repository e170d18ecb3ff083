// For tests of storage: short ways to write and read whole files, and a folder that goes with the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/storage/storage.h"

namespace milepost {

// A new folder below the system's folder for temporary files, removed at the end.
class TestFolder {
 public:
  TestFolder() : path_(testing::TempDir() + "/milepost-storage-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw errno;
  }
  ~TestFolder() { posix_storage()->remove_tree(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

// `length` bytes that differ by `seed` and position.
inline std::string test_bytes(size_t length, uint64_t seed) {
  std::string bytes(length, '\0');
  uint64_t state = seed * 2654435761u + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

// Writes and syncs, padded and cut as the file's alignment asks.
inline void write_file(Storage& storage, const std::string& path, std::string_view text,
                       const WriteFileOptions& options = {}) {
  const auto file = storage.open_write(path, options);
  const auto size = static_cast<int64_t>(text.size());
  const int64_t padded = round_up(size, file->alignment());
  const AlignedBuffer buffer(padded + 1);
  std::memset(buffer.data(), 0, static_cast<size_t>(padded));
  std::memcpy(buffer.data(), text.data(), text.size());
  const Bytes part(buffer.data(), static_cast<size_t>(padded));
  file->write_at(0, {&part, 1});
  file->truncate(size);
  file->sync();
  file->close();
}

inline std::string read_file(Storage& storage, const std::string& path) {
  const auto source = storage.open_read(path);
  std::string text(static_cast<size_t>(source->size()), '\0');
  source->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Every file below `path` with its content, names relative to it, folders ending in '/' with none; a file at
// `path` itself is named "". nullopt: nothing is there.
using FolderContent = std::optional<std::map<std::string, std::string>>;
inline FolderContent read_content(Storage& storage, const std::string& path) {
  const std::optional<FileInfo> info = storage.stat(path);
  if (!info) return std::nullopt;
  if (!info->is_directory) return std::map<std::string, std::string>{{"", read_file(storage, path)}};
  std::map<std::string, std::string> content;
  for (const FileInfo& entry : storage.list(path)) {
    if (entry.is_directory) content[entry.name + "/"];
    const FolderContent inner = read_content(storage, join_path(path, entry.name));
    for (const auto& [name, text] : *inner) {
      content[entry.is_directory ? join_path(entry.name, name) : entry.name] = text;
    }
  }
  return content;
}

// The error that `call` throws.
template <typename Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error, none was thrown";
  return {ErrorCode::kBadArgument, "nothing was thrown"};
}

}  // namespace milepost
