// For tests of the engine: fixtures copied into a storage in memory, where they can be damaged.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "milepost/engine/checkpoint.h"
#include "milepost/storage/storage.h"

namespace milepost {

class TestCheckpoint {
 public:
  // A copy of the files directly in tests/data/`fixture`, or an empty folder when that is "".
  explicit TestCheckpoint(const std::string& fixture = "") {
    where.storage->make_directory(where.path);
    if (fixture.empty()) return;
    const std::string source = std::string(MILEPOST_TEST_DATA) + "/" + fixture;
    for (const FileInfo& file : posix_storage()->list(source)) {
      if (!file.is_regular) continue;
      const ByteVector content =
          read_all(*posix_storage()->open_read(join_path(source, file.name)), file.size_bytes);
      write(file.name, as_text(content));
    }
  }

  std::string path(std::string_view name) const { return join_path(where.path, name); }
  std::string read(std::string_view name) const {
    const auto file = where.storage->open_read(path(name));
    const ByteVector bytes = read_all(*file, file->size());
    return std::string(as_text(bytes));
  }
  void write(std::string_view name, std::string_view content) const {
    const auto file = where.storage->open_write(path(name), {static_cast<int64_t>(content.size()), false});
    const Bytes bytes = as_bytes(content);
    if (!content.empty()) file->write_at(0, {&bytes, 1});
    file->sync();
    file->close();
  }
  void remove(std::string_view name) const { where.storage->remove_file(path(name)); }
  void flip(std::string_view name, int64_t offset) const {
    std::string content = read(name);
    content[static_cast<size_t>(offset)] = static_cast<char>(content[static_cast<size_t>(offset)] ^ 1);
    write(name, content);
  }

  StorageLocation where{memory_storage(), "/checkpoint"};
};

// A safetensors file of the given header and data.
inline std::string safetensors_file(const std::string& header, std::string_view data) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data);
}

// A safetensors file with one float32 vector.
inline std::string one_vector(const std::string& name, const std::vector<float>& values) {
  const size_t bytes = values.size() * 4;
  const std::string header = "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" +
                             std::to_string(values.size()) + "],\"data_offsets\":[0," +
                             std::to_string(bytes) + "]}}";
  return safetensors_file(header, {reinterpret_cast<const char*>(values.data()), bytes});
}

}  // namespace milepost
