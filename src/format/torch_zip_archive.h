// An opened torch.save archive: its records by their part in the format, version and byte order checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/format/zip.h"

namespace milepost::torch_zip {

class Archive {
 public:
  // Reads directory, version and byteorder. `source` must outlive the archive. Throws FormatError: damaged
  // zip, kUnsupported for the pre-1.6 layout, TorchScript, versions beyond 10 and unknown byte orders,
  // kBadFormat when data.pkl or version is missing.
  explicit Archive(const ByteSource& source);
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  const ByteSource& source() const { return source_; }
  bool big_endian() const { return big_endian_; }
  const std::vector<zip::Record>& records() const { return records_; }

  // nullptr when there is no record of that name below the top folder.
  zip::Record* find(std::string_view name);
  std::string_view name_below_top(const zip::Record& record) const;  // empty when it lies elsewhere

  // data.pkl, which find() gives too; it always exists.
  zip::Record& pickle_record() { return records_[pickle_]; }
  ByteVector read_pickle();

  // data/`key` with data_offset set. Throws FormatError when it is missing, deflated (kUnsupported) or is not
  // of `expected_bytes` (any when negative).
  zip::Record& storage(std::string_view key, int64_t expected_bytes);

 private:
  std::string read_small(zip::Record& record);
  void check_version();
  void read_byte_order();

  const ByteSource& source_;
  std::vector<zip::Record> records_;
  std::unordered_map<std::string_view, size_t> index_;  // by name below the top; empty for few records
  size_t top_bytes_ = 0;  // of the top folder's name with its slash, at the start of records_[0].name
  size_t pickle_ = 0;
  bool big_endian_ = false;
};

// Throws kUnsupported when `source` starts with the magic number of the pre-1.6 layout.
void refuse_pre_zip(const ByteSource& source);

}  // namespace milepost::torch_zip
