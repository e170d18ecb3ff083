#include <fmt/format.h>

#include <algorithm>

#include "engine/verify_parts.h"
#include "milepost/base/checksum.h"

namespace milepost {
namespace {

uint32_t crc_of(const ByteSource& archive, int64_t offset, int64_t length, MutableBytes block) {
  uint32_t crc = 0;
  if (archive.data() != nullptr) return crc32(0, {archive.data() + offset, static_cast<size_t>(length)});
  for (int64_t done = 0; done < length;) {
    const int64_t n = std::min(length - done, static_cast<int64_t>(block.size()));
    const MutableBytes part = block.first(static_cast<size_t>(n));
    archive.read_at(offset + done, part);
    crc = crc32(crc, part);
    done += n;
  }
  return crc;
}

}  // namespace

void check_record(const ByteSource& archive, zip::Record& record, bool payloads, MutableBytes block,
                  const Place& place, Findings& findings, CrcTally* tally) {
  try {
    zip::locate(archive, record);
    if (!payloads || record.size == 0) return;
    ++tally->records;
    if (record.method == zip::kDeflated) {
      zip::read_record(archive, record, archive.size() * 100, true);
      tally->without_crc += record.crc32 == 0;
      return;
    }
    const uint32_t crc = crc_of(archive, record.data_offset, record.size, block);
    if (crc == record.crc32) return;
    if (record.crc32 == 0) {
      ++tally->without_crc;
      return;
    }
    FormatError error(
        ErrorCode::kChecksum,
        fmt::format("the {} bytes of record '{}' have CRC-32 {:08x}, but {:08x} was stored with them",
                    record.size, printable(record.name), crc, record.crc32),
        "the bytes changed after they were written: restore the file from a copy");
    error.set_offset(record.data_offset);
    findings.add(error, place);
  } catch (const Error& error) {
    findings.add(error, place);
  }
}

void note_missing_crcs(const CrcTally& tally, std::string_view path, Findings& findings) {
  if (tally.without_crc == 0) return;
  findings.note(
      ErrorCode::kChecksum, {path},
      fmt::format("{} of {} records were written without a CRC, so damage to their bytes cannot be seen",
                  tally.without_crc, tally.records));
}

}  // namespace milepost
