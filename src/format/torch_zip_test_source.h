// For tests: files of tests/data as sources, archives in the making, and a source that counts reads.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/base/checksum.h"
#include "milepost/format/zip.h"

namespace milepost::torch_zip {

inline std::string test_data(std::string_view path) {
  return std::string(MILEPOST_TEST_DATA) + "/" + std::string(path);
}

inline ByteVector read_file(const std::string& path) {
  ByteVector bytes(std::filesystem::file_size(path));
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// Bytes that are read as from a file: not offered in memory, reads counted.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(ByteVector bytes, std::string name = "counted")
      : memory_(std::move(bytes), std::move(name)) {}
  int64_t size() const override { return memory_.size(); }
  const std::string& name() const override { return memory_.name(); }
  void read_at(int64_t offset, MutableBytes dst) const override {
    ++reads;
    bytes_read += static_cast<int64_t>(dst.size());
    memory_.read_at(offset, dst);
  }
  Bytes bytes() const { return {memory_.data(), static_cast<size_t>(memory_.size())}; }

  mutable std::atomic<int64_t> reads{0}, bytes_read{0};

 private:
  MemorySource memory_;
};

struct NamedPayload {
  std::string name, payload;
};

// A sound archive of stored records.
inline ByteVector archive_of(const std::vector<NamedPayload>& records) {
  ByteVector out, directory;
  auto position = [&] { return static_cast<int64_t>(out.size()); };
  for (const auto& [name, payload] : records) {
    auto size = static_cast<int64_t>(payload.size());
    zip::Written written{name, position(), size, crc32(0, as_bytes(payload))};
    zip::append_local_header(out, position(), name, size);
    out.insert(out.end(), as_bytes(payload).begin(), as_bytes(payload).end());
    zip::append_descriptor(out, written.crc32, size, written.header_position);
    zip::append_directory_entry(directory, written);
  }
  int64_t start = position();
  out.insert(out.end(), directory.begin(), directory.end());
  zip::append_end(out, start, static_cast<int64_t>(directory.size()), static_cast<int64_t>(records.size()));
  return out;
}

}  // namespace milepost::torch_zip
