// Zip: the subset that torch.save uses (spec dcp-format, section 3.1). Reading: stored or deflated records, zip64, descriptors. Writing: stored records in torch's framing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"

namespace milepost::zip {

struct Record {
  std::string name;
  int64_t data_offset = -1;       // of the first payload byte, from the start of the archive; -1 until locate() has read the local header
  int64_t header_offset = 0;      // of the local header
  int64_t compressed_size = 0, size = 0;
  uint32_t crc32 = 0;
  uint16_t method = 0;            // 0 stored, 8 deflated
  uint16_t flags = 0;
};

// The central directory of the archive that is the whole of `archive`. Validates: end records, counts, that every record lies inside the archive and before the directory, that no two overlap,
// unique names, no name that is absolute or holds "..". Trailing bytes after the end record are accepted as torch does. Encrypted or multi-disk: kUnsupported. Throws FormatError with path and offset.
// Cost: one read of the tail for small archives, at most two more.
std::vector<Record> read_directory(const ByteSource& archive);

// Fills data_offset from the local header, whose signature, method and name must agree with the directory.
void locate(const ByteSource& archive, Record& record);

// The payload, inflated when deflated; at most `max_bytes` (kTooLarge). With `check_crc`, a stored CRC that is not 0 must match (kChecksum).
ByteVector read_record(const ByteSource& archive, Record& record, int64_t max_bytes, bool check_crc);

// ---- writing: framing bytes around payloads whose sizes are known before they are written ----

// Appends the local header of a stored record at archive position `position`, padded ("FB" field of 'Z') so that the payload starts at a multiple of 64; returns the payload's position.
int64_t append_local_header(ByteVector& out, int64_t position, std::string_view name, int64_t size, int64_t extra_pad = 0);
// Bytes of the data descriptor after a payload of `size` bytes (0 for an empty one).
int64_t descriptor_size(int64_t size, int64_t header_position);
void append_descriptor(ByteVector& out, uint32_t crc32, int64_t size, int64_t header_position);
// What the central directory needs of a written record.
struct Written {
  std::string name;
  int64_t header_position = 0, size = 0;
  uint32_t crc32 = 0;
};
// Central directory, zip64 end record, locator and end record, starting at archive position `position`.
void append_directory(ByteVector& out, int64_t position, const std::vector<Written>& records);
int64_t directory_size(const std::vector<Written>& records);

}  // namespace milepost::zip
