// The framing of an archive that we write: every byte that is not a tensor's, laid out before any payload
// exists.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"

namespace milepost::torch_zip {

struct FrameRecord {
  std::string_view name;
  int64_t size = 0;
  Bytes literal;  // the payload, for all but storages
  int64_t header_position = 0, payload_position = 0;
};

inline constexpr size_t kLeadingRecords = 4;   // data.pkl, .format_version, .storage_alignment, byteorder
inline constexpr size_t kTrailingRecords = 2;  // version, .data/serialization_id

// An archive is literal, storage 0, literal, storage 1, ... literal: n storages between n + 1 literals. All
// that it points to must outlive it.
class Frame {
 public:
  // `records`: leading ones, storages, trailing ones, with name, size and literal set (of literals only the
  // size is needed here); gives them their positions. With `align_total` the total becomes a multiple of 64.
  Frame(std::span<FrameRecord> records, bool align_total);

  int64_t num_storages() const {
    return static_cast<int64_t>(records_.size() - kLeadingRecords - kTrailingRecords);
  }
  int64_t storage_position(int64_t storage) const { return storage_record(storage).payload_position; }
  int64_t storage_bytes(int64_t storage) const { return storage_record(storage).size; }
  int64_t total() const { return total_; }

  // Appends the literal before storage `index`, or behind the last for index == num_storages().
  // `storage_crcs` of the storages before it.
  void append_literal(ByteVector& out, int64_t index, std::span<const uint32_t> storage_crcs) const;

 private:
  const FrameRecord& storage_record(int64_t storage) const {
    return records_[kLeadingRecords + static_cast<size_t>(storage)];
  }
  void append_header(ByteVector& out, const FrameRecord& record) const;
  void append_whole(ByteVector& out, const FrameRecord& record) const;
  void append_directory(ByteVector& out, std::span<const uint32_t> storage_crcs) const;

  std::span<FrameRecord> records_;
  int64_t last_pad_ = 0, directory_position_ = 0, directory_bytes_ = 0, total_ = 0;
};

// 40 decimal digits, the record's fixed size: from the names of the records and the pickle, so that equal
// archives are equal bytes. torch derives its digits otherwise, and from the payloads too; no reader looks at
// them.
using SerializationId = std::array<char, 40>;
SerializationId serialization_id(std::span<const FrameRecord> records, Bytes pickle);

// The archive of `pickle` and any number of storages; owns names and pickle.
class ArchiveFrame {
 public:
  ArchiveFrame(std::string_view top, ByteVector pickle, std::span<const std::string_view> keys,
               std::span<const int64_t> storage_bytes, bool align_total);
  ArchiveFrame(const ArchiveFrame&) = delete;
  ArchiveFrame& operator=(const ArchiveFrame&) = delete;
  const Frame& frame() const { return frame_; }

 private:
  std::vector<FrameRecord> make_records(std::string_view top, std::span<const std::string_view> keys,
                                        std::span<const int64_t> storage_bytes);

  ByteVector pickle_;
  std::vector<std::string> names_;
  SerializationId id_{};
  std::vector<FrameRecord> records_;
  Frame frame_;
};

}  // namespace milepost::torch_zip
