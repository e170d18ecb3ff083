// Zip: the subset that torch.save uses (spec dcp-format, section 3.1). Reading: stored or deflated records,
// zip64, data descriptors. Writing: stored records in torch's framing, byte for byte.
//
// All positions and offsets count from the start of the archive, which is the whole of the ByteSource given.
// Threads: all functions are reentrant. Ownership: sources are only looked at during the call. Errors:
// FormatError with path (the source's name) and offset; StorageError from the source passes through.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"

namespace milepost::zip {

// ---- reading ----

struct Record {
  std::string name;
  int64_t data_offset = -1;   // of the first payload byte; -1 until locate() has read the local header
  int64_t header_offset = 0;  // of the local header
  int64_t end_limit = 0;      // where the next record or the directory begins: the payload ends before it
  int64_t compressed_size = 0, size = 0;
  uint32_t crc32 = 0;   // as stored; writers may leave 0
  uint16_t method = 0;  // kStored or kDeflated, the others are refused when the record is read
  uint16_t flags = 0;
};
inline constexpr uint16_t kStored = 0, kDeflated = 8;

// The central directory, in its order. Validates: end records, counts and sizes against each other and the
// file, that every record lies before the directory, that no two overlap, that names are unique and neither
// empty nor absolute nor with a ".." part. Bytes after the end record are accepted, as torch does; before the
// first record not. Throws FormatError: kTruncated (no end record in the last 64 KiB, or cut short),
// kBadFormat, kOutOfBounds, kOverlap, kDuplicate, kPathEscape, kUnsupported (encrypted, several disks),
// kTooLarge (a directory of more than 256 MiB). Cost: one read of 1 KiB when the directory lies in it, else
// one or two more. Memory: about 100 bytes a record.
std::vector<Record> read_directory(const ByteSource& archive);

// Fills record.data_offset from the local header, whose signature, method, name and (where it states them)
// sizes must agree with the directory's, and whose payload must end before `end_limit`. Cost: one small read,
// or none if located. Throws FormatError kBadFormat, kOverlap, kUnsupported (a method other than stored or
// deflated).
void locate(const ByteSource& archive, Record& record);

// The payload, inflated when deflated. Throws FormatError kTooLarge beyond `max_bytes` and for a deflated
// record that claims more than 100 times its stored bytes, kBadFormat for a damaged stream and, with
// `check_crc`, kChecksum when a stored CRC other than 0 does not match. Memory: the payload, which the file's
// own bytes justify.
ByteVector read_record(const ByteSource& archive, Record& record, int64_t max_bytes, bool check_crc);

// ---- writing: framing around payloads whose sizes are known before their bytes ----
//
// Sizes never depend on CRCs, so a whole file can be laid out first. Numbers of 2^32 - 1 and more (a
// payload's size, a record's position) go into zip64 fields as torch's writer does: measured with torch 2.13
// on records over 4 GiB.

inline constexpr int64_t kAlignment = 64;  // of payloads, counted from the start of the archive

// What the directory needs to know of a written record. The name must outlive the call it is given to.
struct Written {
  std::string_view name;
  int64_t header_position = 0, size = 0;
  uint32_t crc32 = 0;  // ignored for an empty record
};

// Where the payload starts of a record whose local header is at `position`: the next multiple of 64 that
// leaves room for header and name, plus `extra_pad` (0 to 65000).
int64_t payload_position(int64_t position, int64_t name_size, int64_t size, int64_t extra_pad = 0);
// Appends that local header: payload_position(...) - position bytes, padded with an "FB" extra field of 'Z'.
void append_local_header(ByteVector& out, int64_t position, std::string_view name, int64_t size,
                         int64_t extra_pad = 0);

// The data descriptor behind a payload; an empty record has none.
int64_t descriptor_size(int64_t size, int64_t header_position);
void append_descriptor(ByteVector& out, uint32_t crc32, int64_t size, int64_t header_position);

// One entry of the central directory; `record.crc32` plays no part in the size.
int64_t directory_entry_size(const Written& record);
void append_directory_entry(ByteVector& out, const Written& record);

// Zip64 end record, its locator and the end record, which close an archive whose directory of `num_records`
// entries is [directory_position, directory_position + directory_bytes).
inline constexpr int64_t kEndBytes = 56 + 20 + 22;
void append_end(ByteVector& out, int64_t directory_position, int64_t directory_bytes, int64_t num_records);

}  // namespace milepost::zip
