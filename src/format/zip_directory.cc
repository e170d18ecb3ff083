// Reading the directory of a zip archive, from its end:
//
//   1. the end record is the last "PK\5\6" with 22 bytes left in the file, at most 64 KiB before its end: a
//   comment, or
//      whatever was appended, may follow (torch takes it alike)
//   2. 20 bytes before it may stand a zip64 locator, which says where the zip64 end record is; torch always
//   writes both.
//      Fields of the end record are then either equal to those of the zip64 one or saturated
//   3. the directory is where they say, in front of them, and is filled exactly by its entries
//   4. entries whose 32-bit fields are saturated carry the numbers in a zip64 extra field, in the order size,
//   compressed size,
//      position, each only when its field is saturated
//
// A zip names every fact twice; readers that trust different copies see different archives. So what
// contradicts itself is refused here rather than resolved.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "format/zip_error.h"
#include "format/zip_fields.h"
#include "milepost/base/checked_math.h"
#include "milepost/format/zip.h"

namespace milepost::zip {
namespace {

constexpr int64_t kFirstRead = 1024;                       // holds the directory and the end of a DCP item
constexpr int64_t kSearchBytes = 65535 + kEndRecordBytes;  // the longest comment
constexpr int64_t kMaxDirectoryBytes = int64_t{256} << 20;
constexpr size_t kPairwiseNames = 16;

// The last bytes of an archive, read at most twice; all of it when it lies in memory.
class Tail {
 public:
  explicit Tail(const ByteSource& archive) : archive_(archive), size_(archive.size()) {
    if (archive.data() != nullptr) {
      bytes_ = {archive.data(), static_cast<size_t>(size_)};
    } else {
      load(first_, std::min(size_, kFirstRead));
    }
  }

  int64_t start() const { return size_ - static_cast<int64_t>(bytes_.size()); }

  // Position of the last end record among the bytes held, -1 when there is none.
  int64_t find_end_record() const {
    int64_t lowest = std::max(start(), size_ - kSearchBytes);
    for (int64_t at = size_ - kEndRecordBytes; at >= lowest; --at) {
      if (load32(held(at)) == kEndSignature) return at;
    }
    return -1;
  }
  int64_t search_end_record() {
    int64_t at = find_end_record();
    if (at >= 0 || start() == 0) return at;
    more_.resize(static_cast<size_t>(std::min(size_, kSearchBytes)));
    load(more_, std::min(size_, kSearchBytes));
    return find_end_record();
  }

  // [offset, offset + length), which lies inside the archive: from the bytes held, or read into `scratch`.
  template <typename Buffer>
  const std::byte* get(int64_t offset, int64_t length, Buffer& scratch) const {
    if (offset >= start()) return held(offset);
    if constexpr (requires { scratch.resize(size_t{}); }) scratch.resize(static_cast<size_t>(length));
    archive_.read_at(offset, MutableBytes(scratch).first(static_cast<size_t>(length)));
    return scratch.data();
  }

 private:
  template <typename Buffer>
  void load(Buffer& buffer, int64_t length) {
    MutableBytes span = MutableBytes(buffer).first(static_cast<size_t>(length));
    archive_.read_at(size_ - length, span);
    bytes_ = span;
  }
  const std::byte* held(int64_t offset) const { return bytes_.data() + (offset - start()); }

  const ByteSource& archive_;
  int64_t size_;
  Bytes bytes_;
  std::array<std::byte, kFirstRead> first_;
  ByteVector more_;
};

struct Directory {
  int64_t offset = 0, bytes = 0, num_records = 0;
  int64_t limit = 0;  // where the end records begin
};

// A length of 8 bytes, then a JSON object.
bool starts_like_safetensors(const ByteSource& archive) {
  std::array<std::byte, 9> first{};
  if (archive.size() < 9) return false;
  archive.read_at(0, first);
  return load64(first.data()) < uint64_t{100'000'000} && first[8] == std::byte{'{'};
}

[[noreturn]] void throw_no_end(const ByteSource& archive) {
  std::array<std::byte, 4> first{};
  if (archive.size() >= 4) archive.read_at(0, first);
  if (load32(first.data()) != kLocalSignature) {
    if (starts_like_safetensors(archive)) {
      fail(
          archive, ErrorCode::kUnsupported, 0, "these bytes are in the safetensors format, not a zip archive",
          "give a safetensors file a name that ends in .safetensors; items of a .distcp file that were saved "
          "with SerializationFormat.SAFETENSORS, which torch itself cannot load, must be saved again "
          "without");
    }
    fail(archive, ErrorCode::kBadFormat, 0, "not a zip archive: it neither starts nor ends like one",
         "torch.save files are zip archives since torch 1.6");
  }
  fail(archive, ErrorCode::kTruncated, archive.size(),
       "the zip archive has no end record in its last 64 KiB: it is cut short",
       "copy the file again or restore it from a backup");
}

// Step 2. `end` holds the plain record's fields and takes the zip64 record's.
void read_zip64_end(const ByteSource& archive, const Tail& tail, int64_t end_position, Directory* end) {
  std::array<std::byte, kZip64EndBytes> scratch;
  if (end_position < kLocatorBytes) return;
  int64_t locator_position = end_position - kLocatorBytes;
  const std::byte* locator = tail.get(locator_position, kLocatorBytes, scratch);
  if (load32(locator) != kZip64LocatorSignature) return;
  auto position = static_cast<int64_t>(load64(locator + 8));
  if (load32(locator + 4) != 0 || load32(locator + 16) > 1) {
    fail(archive, ErrorCode::kUnsupported, locator_position, "the zip archive is split over several disks");
  }
  if (!range_fits(position, kZip64EndBytes, locator_position)) {
    fail(archive, ErrorCode::kOutOfBounds, locator_position,
         fmt::format("zip64 end record at {} does not lie before its locator", position));
  }
  const std::byte* record = tail.get(position, kZip64EndBytes, scratch);
  if (load32(record) != kZip64EndSignature) {
    fail(archive, ErrorCode::kBadFormat, position, "no zip64 end record where its locator points");
  }
  Directory large{static_cast<int64_t>(load64(record + 48)), static_cast<int64_t>(load64(record + 40)),
                  static_cast<int64_t>(load64(record + 32)), position};
  bool agree = (end->num_records == kSaturated16 || end->num_records == large.num_records) &&
               (end->bytes == kSaturated32 || end->bytes == large.bytes) &&
               (end->offset == kSaturated32 || end->offset == large.offset);
  if (!agree || load64(record + 24) != load64(record + 32) || load64(record + 16) != 0) {
    fail(archive, ErrorCode::kBadFormat, position, "the zip64 end record and the end record disagree");
  }
  *end = large;
}

// Steps 1 to 3.
Directory find_directory(const ByteSource& archive, Tail& tail) {
  int64_t at = archive.size() < kEndRecordBytes ? -1 : tail.search_end_record();
  if (at < 0) throw_no_end(archive);
  std::array<std::byte, kEndRecordBytes> scratch;
  const std::byte* record = tail.get(at, kEndRecordBytes, scratch);
  Directory end{load32(record + 16), load32(record + 12), load16(record + 10), at};
  bool one_disk = load16(record + 8) == load16(record + 10) && load16(record + 4) == load16(record + 6) &&
                  (load16(record + 4) == 0 || load16(record + 4) == kSaturated16);
  if (!one_disk) fail(archive, ErrorCode::kUnsupported, at, "the zip archive is split over several disks");
  read_zip64_end(archive, tail, at, &end);
  if (!range_fits(end.offset, end.bytes, end.limit)) {
    fail(archive, ErrorCode::kOutOfBounds, at,
         fmt::format("zip directory of {} bytes at {} does not lie before the end record at {}", end.bytes,
                     end.offset, end.limit));
  }
  if (end.num_records < 0 || end.num_records > end.bytes / kCentralBytes) {
    fail(archive, ErrorCode::kBadFormat, at,
         fmt::format("zip directory claims {} records in {} bytes", end.num_records, end.bytes));
  }
  if (end.bytes > kMaxDirectoryBytes) {
    fail(archive, ErrorCode::kTooLarge, at,
         fmt::format("zip directory of {} bytes; at most 256 MiB are read", end.bytes));
  }
  return end;
}

// Step 4: the saturated ones of `numbers`, in the order of the format.
bool fill_from_zip64(Bytes extra, std::array<int64_t*, 3> numbers) {
  while (extra.size() >= 4) {
    size_t length = load16(extra.data() + 2);
    uint16_t id = load16(extra.data());
    extra = extra.subspan(4);
    if (length > extra.size()) return false;
    Bytes field = extra.first(length);
    extra = extra.subspan(length);
    if (id != kZip64Extra) continue;
    for (int64_t* number : numbers) {
      if (*number != kSaturated32) continue;
      if (field.size() < 8) return false;
      *number = static_cast<int64_t>(load64(field.data()));
      field = field.subspan(8);
    }
    return true;
  }
  return false;
}

bool leaves_folder(std::string_view name) {
  size_t start = 0;  // of the part that `i` is in
  for (size_t i = 0; i <= name.size(); ++i) {
    char c = i < name.size() ? name[i] : '/';
    if (c == '\0') return true;
    if (c != '/' && c != '\\') continue;
    if (i == 0 || (i - start == 2 && name[start] == '.' && name[start + 1] == '.')) return true;
    start = i + 1;
  }
  return false;
}

void check_name(const ByteSource& archive, std::string_view name, int64_t at) {
  if (name.empty()) fail(archive, ErrorCode::kBadFormat, at, "a zip record has no name");
  if (leaves_folder(name)) {
    fail(archive, ErrorCode::kPathEscape, at,
         fmt::format("zip record name '{}' is absolute or leaves its folder", printable(name)));
  }
}

// The entry at `*entry`, which is moved behind it; `at` is its position for messages.
Record parse_entry(const ByteSource& archive, Bytes* rest, int64_t at) {
  auto cut_short = [&] { fail(archive, ErrorCode::kTruncated, at, "a zip directory entry is cut short"); };
  if (rest->size() < static_cast<size_t>(kCentralBytes)) cut_short();
  const std::byte* entry = rest->data();
  if (load32(entry) != kCentralSignature) {
    fail(archive, ErrorCode::kBadFormat, at, "no zip directory entry where one is due");
  }
  size_t name_size = load16(entry + 28), extra_size = load16(entry + 30), comment_size = load16(entry + 32);
  *rest = rest->subspan(static_cast<size_t>(kCentralBytes));
  if (rest->size() < name_size + extra_size + comment_size) cut_short();
  Record record;
  record.name = as_text(rest->first(name_size));
  record.flags = load16(entry + 8);
  record.method = load16(entry + 10);
  record.crc32 = load32(entry + 16);
  record.compressed_size = load32(entry + 20);
  record.size = load32(entry + 24);
  record.header_offset = load32(entry + 42);
  Bytes extra = rest->subspan(name_size, extra_size);
  *rest = rest->subspan(name_size + extra_size + comment_size);

  check_name(archive, record.name, at);
  auto refuse = [&](ErrorCode code, std::string_view what) {
    fail(archive, code, at, fmt::format("zip record '{}' {}", printable(record.name), what));
  };
  bool large = record.size == kSaturated32 || record.compressed_size == kSaturated32 ||
               record.header_offset == kSaturated32;
  if (large && !fill_from_zip64(extra, {&record.size, &record.compressed_size, &record.header_offset})) {
    refuse(ErrorCode::kBadFormat, "lacks the zip64 field that its sizes ask for");
  }
  if (record.flags & kEncryptedFlags) refuse(ErrorCode::kUnsupported, "is encrypted");
  if (load16(entry + 34) != 0) refuse(ErrorCode::kUnsupported, "lies on another disk");
  if (record.size < 0 || record.compressed_size < 0 || record.header_offset < 0) {
    refuse(ErrorCode::kOutOfBounds, "claims a size or position beyond 2^63");
  }
  if (record.method == kStored && record.size != record.compressed_size) {
    refuse(ErrorCode::kBadFormat, "is stored, but its two sizes differ");
  }
  return record;
}

void refuse_duplicates(const ByteSource& archive, const std::vector<Record>& records,
                       const Directory& directory) {
  auto refuse = [&](std::string_view name) {
    fail(archive, ErrorCode::kDuplicate, directory.offset,
         fmt::format("the zip archive holds '{}' twice", printable(name)));
  };
  if (records.size() <= kPairwiseNames) {
    for (size_t i = 1; i < records.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (records[i].name == records[j].name) refuse(records[i].name);
      }
    }
    return;
  }
  std::vector<std::string_view> names;
  names.reserve(records.size());
  for (const Record& record : records) names.push_back(record.name);
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse(*twice);
}

// Sets end_limit. Local extra fields and descriptors are not known yet, so this is the least that a record
// takes.
void refuse_overlaps(const ByteSource& archive, std::vector<Record>& records, const Directory& directory) {
  std::vector<uint32_t> order;
  auto before = [](const Record& a, const Record& b) { return a.header_offset < b.header_offset; };
  bool sorted = std::is_sorted(records.begin(), records.end(), before);
  if (!sorted) {
    order.resize(records.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return before(records[a], records[b]); });
  }
  int64_t limit = directory.offset;
  for (size_t i = records.size(); i-- > 0;) {
    Record& record = records[sorted ? i : order[i]];
    int64_t framing = kLocalBytes + static_cast<int64_t>(record.name.size());
    bool fits = range_fits(record.header_offset, framing, limit) &&
                range_fits(record.header_offset + framing, record.compressed_size, limit);
    if (!fits) {
      bool last = i + 1 == records.size();
      fail(archive, last ? ErrorCode::kOutOfBounds : ErrorCode::kOverlap, record.header_offset,
           fmt::format("zip record '{}' of {} bytes reaches into {} at {}", printable(record.name),
                       record.compressed_size, last ? "the directory" : "the next record", limit));
    }
    record.end_limit = limit;
    limit = record.header_offset;
  }
}

}  // namespace

std::vector<Record> read_directory(const ByteSource& archive) {
  Tail tail(archive);
  Directory directory = find_directory(archive, tail);
  ByteVector scratch;
  const std::byte* bytes =
      directory.bytes == 0 ? nullptr : tail.get(directory.offset, directory.bytes, scratch);
  Bytes rest(bytes, static_cast<size_t>(directory.bytes));
  std::vector<Record> records;
  records.reserve(static_cast<size_t>(directory.num_records));
  for (int64_t i = 0; i < directory.num_records; ++i) {
    records.push_back(
        parse_entry(archive, &rest, directory.offset + directory.bytes - static_cast<int64_t>(rest.size())));
  }
  if (!rest.empty()) {
    fail(archive, ErrorCode::kBadFormat,
         directory.offset + directory.bytes - static_cast<int64_t>(rest.size()),
         fmt::format("the zip directory has {} bytes more than its {} entries", rest.size(),
                     directory.num_records));
  }
  refuse_duplicates(archive, records, directory);
  refuse_overlaps(archive, records, directory);
  return records;
}

}  // namespace milepost::zip
