// The file:
//
// 1. A header of text, always of the same length: a line with the version, the two parts of the identity, the
//    block size, and the CRC-32 of the lines before. The version changes with the meaning of anything here.
// 2. Records of 16 bytes, four little-endian numbers of 4: file, block, the block's CRC-32, and a check: the
//    CRC-32 of the header followed by the first three. Later ones overrule earlier ones.
// 3. A record of block 0xffffffff takes back all earlier ones of its file.
// 4. What a cut left of a record at the end is overwritten by whoever continues.
#include "engine/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

static_assert(std::endian::native == std::endian::little, "records are copied as they lie in memory");

constexpr std::string_view kVersionLine = "milepost conversion journal 1\n";
constexpr std::string_view kSource = "source ", kPlan = "plan ", kBlock = "block ", kCheck = "check ";
constexpr size_t kDigestDigits = 64, kBlockDigits = 12, kCheckDigits = 8;
constexpr size_t kSourceAt = kVersionLine.size() + kSource.size();
constexpr size_t kPlanAt = kSourceAt + kDigestDigits + 1 + kPlan.size();
constexpr size_t kBlockAt = kPlanAt + kDigestDigits + 1 + kBlock.size();
constexpr size_t kHeaderBytes = kBlockAt + kBlockDigits + 1 + kCheck.size() + kCheckDigits + 1;

constexpr int64_t kRecordBytes = 16;
constexpr size_t kCheckedBytes = 12;
constexpr uint32_t kForget = 0xffffffff;
constexpr int64_t kReadBytes = 64 << 10;
// A journal has a record a block, and another for each time that a block had to be written again.
constexpr int64_t kMaxRecordsABlock = 16, kMaxRecordsBeyond = 1 << 16;

std::string header_text(std::string_view source, std::string_view plan, std::string_view block) {
  const std::string text =
      fmt::format("{}{}{}\n{}{}\n{}{}\n", kVersionLine, kSource, source, kPlan, plan, kBlock, block);
  return fmt::format("{}{}{:08x}\n", text, kCheck, crc32(0, as_bytes(text)));
}

std::string header_of(const ConversionIdentity& identity, int64_t block_bytes) {
  return header_text(to_hex(identity.source), to_hex(identity.plan),
                     fmt::format("{:0{}}", block_bytes, kBlockDigits));
}

// A number of digits only; -1 for anything else.
int64_t parse_block_bytes(std::string_view digits) {
  int64_t value = 0;
  for (char digit : digits) {
    if (digit < '0' || digit > '9') return -1;
    value = value * 10 + (digit - '0');
  }
  return value;
}

}  // namespace

Journal::Journal(Storage& storage, std::string path, const ConversionIdentity& identity, const Policy& policy)
    : storage_(storage),
      path_(std::move(path)),
      identity_(identity),
      policy_(policy),
      last_write_out_(std::chrono::steady_clock::now()) {}

void Journal::set_block_bytes(int64_t block_bytes) {
  block_bytes_ = block_bytes;
  header_crc_ = crc32(0, as_bytes(header_of(identity_, block_bytes)));
}

Journal::Found Journal::read(const std::vector<int64_t>& file_sizes) {
  try {
    const std::unique_ptr<ByteSource> file = storage_.open_read(path_);
    std::string header(kHeaderBytes, '\0');
    file->read_at(0, std::as_writable_bytes(std::span(header)));
    const std::string_view view = header;
    const auto source = view.substr(kSourceAt, kDigestDigits), plan = view.substr(kPlanAt, kDigestDigits);
    const auto block = view.substr(kBlockAt, kBlockDigits);
    const int64_t block_bytes = parse_block_bytes(block);
    if (header != header_text(source, plan, block) || block_bytes < kMinBlockBytes ||
        block_bytes > kMaxBlockBytes || block_bytes % AlignedBuffer::kAlignment != 0) {
      return Found::kNothing;
    }
    if (source != to_hex(identity_.source)) return Found::kOtherSource;
    if (plan != to_hex(identity_.plan)) return Found::kOtherPlan;
    set_block_bytes(block_bytes);
    if (read_records(*file, file_sizes)) return Found::kRecords;
  } catch (const Error&) {
  }
  records_.clear();
  block_bytes_ = 0;
  return Found::kNothing;
}

bool Journal::read_records(const ByteSource& file, const std::vector<int64_t>& file_sizes) {
  int64_t num_blocks = 0;
  for (int64_t size : file_sizes) num_blocks += ceil_div(size, block_bytes_);
  const int64_t num_records = (file.size() - static_cast<int64_t>(kHeaderBytes)) / kRecordBytes;
  if (num_records > num_blocks * kMaxRecordsABlock + kMaxRecordsBeyond) return false;
  records_.assign(file_sizes.size(), {});
  ByteVector bytes(kReadBytes);
  int64_t at = kHeaderBytes;
  for (int64_t left = num_records; left > 0;) {
    const int64_t count = std::min(left, kReadBytes / kRecordBytes);
    file.read_at(at, MutableBytes(bytes.data(), static_cast<size_t>(count * kRecordBytes)));
    for (int64_t i = 0; i < count; ++i) take_record(bytes.data() + i * kRecordBytes, file_sizes);
    at += count * kRecordBytes;
    left -= count;
  }
  end_ = at;
  return true;
}

void Journal::take_record(const std::byte* record, const std::vector<int64_t>& file_sizes) {
  uint32_t fields[4];
  std::memcpy(fields, record, sizeof fields);
  const auto [file, block, crc, check] = fields;
  if (check != crc32(header_crc_, Bytes(record, kCheckedBytes)) || file >= records_.size()) return;
  FileRecords& found = records_[file];
  if (block == kForget) {
    found = {};
    return;
  }
  const int64_t num_blocks = ceil_div(file_sizes[file], block_bytes_);
  if (block >= num_blocks) return;
  if (found.known.empty()) {
    found.crcs.resize(static_cast<size_t>(num_blocks));
    found.known.resize(static_cast<size_t>(num_blocks));
  }
  found.crcs[block] = crc;
  found.known[block] = true;
}

std::optional<uint32_t> Journal::recorded_crc(size_t file, int64_t block) const {
  const auto at = static_cast<size_t>(block);
  if (!has_records(file) || !records_[file].known[at]) return std::nullopt;
  return records_[file].crcs[at];
}

void Journal::add(size_t file, int64_t block, uint32_t crc, int64_t length) {
  const std::lock_guard lock(mutex_);
  if (is_broken_ || file >= kForget || block >= kForget) return;
  append_record(static_cast<uint32_t>(file), static_cast<uint32_t>(block), crc);
  bytes_added_ += length;
  unflushed_bytes_ += length;
  if (unflushed_bytes_ >= policy_.flush_bytes ||
      std::chrono::steady_clock::now() - last_write_out_ >= policy_.flush_time) {
    write_out();
  }
}

void Journal::add_kept(int64_t length) {
  const std::lock_guard lock(mutex_);
  bytes_kept_ += length;
}

void Journal::forget(size_t file) {
  const std::lock_guard lock(mutex_);
  if (is_broken_ || file >= kForget) return;
  if (end_ == 0) {  // nothing is on the disk yet, and nothing shall come there
    is_broken_ = true;
    return;
  }
  append_record(static_cast<uint32_t>(file), kForget, 0);
  try {
    write_out();
  } catch (const Error&) {
    is_broken_ = true;
    out_ = nullptr;
    try {
      storage_.remove_file(path_);
    } catch (const Error&) {  // a disk that takes neither a write nor a removal
    }
  }
}

void Journal::flush() {
  const std::lock_guard lock(mutex_);
  if (!is_broken_ && !buffer_.empty()) write_out();
}

int64_t Journal::bytes_kept() const {
  const std::lock_guard lock(mutex_);
  return bytes_kept_;
}

bool Journal::is_worth_keeping() const {
  const std::lock_guard lock(mutex_);
  return !is_broken_ && bytes_added_ + bytes_kept_ >= policy_.keep_bytes;
}

void Journal::append_record(uint32_t file, uint32_t block, uint32_t crc) {
  uint32_t fields[4] = {file, block, crc, 0};
  fields[3] = crc32(header_crc_, std::as_bytes(std::span(fields)).first(kCheckedBytes));
  const Bytes record = std::as_bytes(std::span(fields));
  buffer_.insert(buffer_.end(), record.begin(), record.end());
}

void Journal::write_out() {
  if (out_ == nullptr) {
    out_ = storage_.open_write(path_, {.direct = false, .keep_content = end_ > 0});
    if (end_ == 0) {
      const std::string header = header_of(identity_, block_bytes_);
      const Bytes bytes = as_bytes(header);
      buffer_.insert(buffer_.begin(), bytes.begin(), bytes.end());
    }
  }
  const Bytes bytes = buffer_;
  out_->write_at(end_, {&bytes, 1});
  end_ += static_cast<int64_t>(bytes.size());
  buffer_.clear();
  unflushed_bytes_ = 0;
  last_write_out_ = std::chrono::steady_clock::now();
}

}  // namespace milepost
