// Reading one record of a zip archive: its local header must tell the same as the directory, then follows the
// payload.
//
//   1. local header, 30 bytes, then as many bytes of name and of extra field as it says; the payload begins
//   behind them
//   2. with flag 8 the sizes and the CRC stand in a descriptor behind the payload and may be 0 here; else
//   they are those of
//      the directory, or saturated with the sizes in the zip64 extra field
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>

#include "format/zip_error.h"
#include "format/zip_fields.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/checksum.h"
#include "milepost/format/zip.h"

namespace milepost::zip {
namespace {

constexpr int64_t kMaxInflation = 100;  // times; pickles of real checkpoints stay below 30
constexpr int64_t kMinInflateBytes = 4096;
constexpr size_t kUsualNameBytes = 226;

[[noreturn]] void refuse(const ByteSource& archive, const Record& record, ErrorCode code,
                         std::string_view what) {
  fail(archive, code, record.header_offset, fmt::format("zip record '{}' {}", printable(record.name), what));
}

// A size of the local header: as in the directory, or left to the zip64 field.
bool agrees(uint32_t local, int64_t size) { return local == kSaturated32 || local == size; }

class Inflater {
 public:
  Inflater() : ok_(inflateInit2(&stream_, -MAX_WBITS) == Z_OK) {}
  ~Inflater() {
    if (ok_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Whether `in` is one deflate stream that fills `out` exactly.
  bool run(Bytes in, MutableBytes out) {
    if (!ok_) return false;
    constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits
    int status = Z_OK;
    size_t read = 0, written = 0;
    while (status == Z_OK) {
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data() + read));
      stream_.avail_in = static_cast<uInt>(std::min(kStep, in.size() - read));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + written);
      stream_.avail_out = static_cast<uInt>(std::min(kStep, out.size() - written));
      uInt in_before = stream_.avail_in, out_before = stream_.avail_out;
      status = inflate(&stream_, Z_NO_FLUSH);
      read += in_before - stream_.avail_in;
      written += out_before - stream_.avail_out;
      if (in_before == stream_.avail_in && out_before == stream_.avail_out) break;
    }
    return status == Z_STREAM_END && written == out.size() && read == in.size();
  }

 private:
  z_stream stream_{};
  bool ok_;
};

ByteVector read_deflated(const ByteSource& archive, const Record& record) {
  int64_t justified = record.compressed_size > INT64_MAX / kMaxInflation
                          ? INT64_MAX
                          : std::max(kMinInflateBytes, record.compressed_size * kMaxInflation);
  if (record.size > justified) {
    refuse(archive, record, ErrorCode::kTooLarge,
           fmt::format("claims {} bytes inflated from {}; more than {} times is refused", record.size,
                       record.compressed_size, kMaxInflation));
  }
  ByteVector compressed(static_cast<size_t>(record.compressed_size));
  archive.read_at(record.data_offset, compressed);
  // One byte of room even for an empty payload: zlib wants an address.
  ByteVector payload(static_cast<size_t>(record.size) + 1);
  if (!Inflater().run(compressed, MutableBytes(payload).first(static_cast<size_t>(record.size)))) {
    refuse(archive, record, ErrorCode::kBadFormat,
           fmt::format("does not inflate to the {} bytes that it claims", record.size));
  }
  payload.pop_back();
  return payload;
}

}  // namespace

void locate(const ByteSource& archive, Record& record) {
  if (record.data_offset >= 0) return;
  auto bad = [&](std::string_view what) { refuse(archive, record, ErrorCode::kBadFormat, what); };
  if (record.method != kStored && record.method != kDeflated) {
    refuse(
        archive, record, ErrorCode::kUnsupported,
        fmt::format("is compressed by method {}; only stored and deflated records are read", record.method));
  }
  std::array<std::byte, kLocalBytes + kUsualNameBytes> usual;
  ByteVector unusual;
  MutableBytes header(usual);
  size_t header_bytes = static_cast<size_t>(kLocalBytes) + record.name.size();
  if (header_bytes > usual.size()) {
    unusual.resize(header_bytes);
    header = unusual;
  }
  header = header.first(header_bytes);
  archive.read_at(record.header_offset, header);
  const std::byte* fields = header.data();
  if (load32(fields) != kLocalSignature) bad("has no local header where the directory points");
  if (load16(fields + 26) != record.name.size() || as_text(header.subspan(kLocalBytes)) != record.name) {
    bad("has another name in its local header");
  }
  uint16_t flags = load16(fields + 6);
  if (load16(fields + 8) != record.method || ((flags ^ record.flags) & kEncryptedFlags) != 0) {
    bad("has another method or encryption in its local header");
  }
  bool described = (flags & kDescriptorFlag) != 0;
  if (!described &&
      (load32(fields + 14) != record.crc32 || !agrees(load32(fields + 18), record.compressed_size) ||
       !agrees(load32(fields + 22), record.size))) {
    bad("has another size or checksum in its local header");
  }
  int64_t start = record.header_offset + static_cast<int64_t>(header_bytes) + load16(fields + 28);
  if (!range_fits(start, record.compressed_size, record.end_limit)) {
    refuse(archive, record, ErrorCode::kOverlap,
           fmt::format("of {} bytes from {} on reaches into what follows at {}", record.compressed_size,
                       start, record.end_limit));
  }
  record.data_offset = start;
}

ByteVector read_record(const ByteSource& archive, Record& record, int64_t max_bytes, bool check_crc) {
  if (record.size > max_bytes) {
    refuse(archive, record, ErrorCode::kTooLarge,
           fmt::format("has {} bytes; at most {} are read here", record.size, max_bytes));
  }
  locate(archive, record);
  ByteVector payload;
  if (record.method == kStored) {
    payload.resize(static_cast<size_t>(record.size));
    archive.read_at(record.data_offset, payload);
  } else {
    payload = read_deflated(archive, record);
  }
  if (check_crc && record.crc32 != 0) {
    uint32_t computed = crc32(0, payload);
    if (computed != record.crc32) {
      refuse(archive, record, ErrorCode::kChecksum,
             fmt::format("has checksum {:08x}, but {:08x} is recorded", computed, record.crc32));
    }
  }
  return payload;
}

}  // namespace milepost::zip
