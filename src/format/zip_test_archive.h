// For tests: zip archives made field by field, so that each of them can lie.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "format/zip_fields.h"
#include "milepost/base/bytes.h"
#include "milepost/base/checksum.h"

namespace milepost::zip {

struct TestRecord {
  std::string name = {};
  std::string payload = {};  // as stored
  uint16_t method = 0;
  uint16_t flags = 0;
  int64_t size = -1;               // claimed; -1: payload's
  int64_t compressed_size = -1;    // claimed; -1: payload's
  int64_t offset = -1;             // claimed; -1: where it is
  int64_t crc = -1;                // claimed; -1: the true one
  std::string local_name = {};     // in the local header; empty: name
  uint16_t local_method = 0xfffe;  // 0xfffe: method
  std::string extra = {};          // in the directory
};

inline void put_field(std::string& out, uint64_t value, size_t bytes) {
  out.append(reinterpret_cast<const char*>(&value), bytes);
}

struct TestArchive {
  std::vector<TestRecord> records;
  std::string before_directory, after_directory, comment, trailing;
  int64_t claimed_records = -1, claimed_directory_bytes = -1, claimed_directory_offset = -1;
  uint16_t disk = 0;
  bool zip64 = false;
  int64_t zip64_directory_offset = -1;  // -1: the true one
  int64_t zip64_position = -1;          // in the locator; -1: the true one

  std::string bytes() const {
    std::string out, directory;
    for (const TestRecord& record : records) append_record(record, &out, &directory);
    out += before_directory;
    auto offset = static_cast<int64_t>(out.size());
    out += directory;
    out += after_directory;
    auto size = static_cast<int64_t>(directory.size() + after_directory.size());
    if (zip64) append_zip64(&out, offset, size);
    put_field(out, kEndSignature, 4);
    put_field(out, disk, 2);
    put_field(out, disk, 2);
    uint64_t count = static_cast<uint64_t>(claimed_records >= 0 ? claimed_records : num_records());
    put_field(out, count, 2);
    put_field(out, count, 2);
    put_field(out, static_cast<uint64_t>(claimed_directory_bytes >= 0 ? claimed_directory_bytes : size), 4);
    put_field(out, static_cast<uint64_t>(claimed_directory_offset >= 0 ? claimed_directory_offset : offset),
              4);
    put_field(out, comment.size(), 2);
    return out + comment + trailing;
  }
  MemorySource source() const {
    std::string text = bytes();
    Bytes view = as_bytes(text);
    return {ByteVector(view.begin(), view.end()), "test.zip"};
  }

 private:
  int64_t num_records() const { return static_cast<int64_t>(records.size()); }

  void append_record(const TestRecord& record, std::string* out, std::string* directory) const {
    auto payload_bytes = static_cast<int64_t>(record.payload.size());
    uint64_t size = static_cast<uint64_t>(record.size >= 0 ? record.size : payload_bytes);
    uint64_t compressed =
        static_cast<uint64_t>(record.compressed_size >= 0 ? record.compressed_size : payload_bytes);
    uint64_t crc = record.crc >= 0 ? static_cast<uint64_t>(record.crc) : crc32(0, as_bytes(record.payload));
    auto offset =
        static_cast<uint64_t>(record.offset >= 0 ? record.offset : static_cast<int64_t>(out->size()));
    auto put_common = [&](std::string& to, uint16_t method) {
      put_field(to, record.flags, 2);
      put_field(to, method, 2);
      put_field(to, 0, 4);
      put_field(to, crc, 4);
      put_field(to, compressed, 4);
      put_field(to, size, 4);
    };
    const std::string& local_name = record.local_name.empty() ? record.name : record.local_name;
    put_field(*out, kLocalSignature, 4);
    put_field(*out, 20, 2);
    put_common(*out, record.local_method == 0xfffe ? record.method : record.local_method);
    put_field(*out, local_name.size(), 2);
    put_field(*out, 0, 2);
    *out += local_name + record.payload;

    put_field(*directory, kCentralSignature, 4);
    put_field(*directory, 20, 2);
    put_field(*directory, 20, 2);
    put_common(*directory, record.method);
    put_field(*directory, record.name.size(), 2);
    put_field(*directory, record.extra.size(), 2);
    directory->append(10, '\0');  // comment length, disk, attributes
    put_field(*directory, offset, 4);
    *directory += record.name + record.extra;
  }

  void append_zip64(std::string* out, int64_t offset, int64_t size) const {
    auto position =
        static_cast<uint64_t>(zip64_position >= 0 ? zip64_position : static_cast<int64_t>(out->size()));
    put_field(*out, kZip64EndSignature, 4);
    put_field(*out, 44, 8);
    put_field(*out, 0x2d, 4);
    put_field(*out, 0, 8);
    put_field(*out, static_cast<uint64_t>(num_records()), 8);
    put_field(*out, static_cast<uint64_t>(num_records()), 8);
    put_field(*out, static_cast<uint64_t>(size), 8);
    put_field(*out, static_cast<uint64_t>(zip64_directory_offset == -1 ? offset : zip64_directory_offset), 8);
    put_field(*out, kZip64LocatorSignature, 4);
    put_field(*out, 0, 4);
    put_field(*out, position, 8);
    put_field(*out, 1, 4);
  }
};

}  // namespace milepost::zip
