// What torch.save puts around storages, in this order (spec dcp-format, section 3.1): data.pkl,
// .format_version, .storage_alignment, byteorder, data/N, version, .data/serialization_id, directory.
// Payloads start at multiples of 64 of the archive.
//
// Items of a .distcp file lie end to end, so we also make the total of an item a multiple of 64: the room
// goes into the padding before the serialization id, the one payload whose place matters to nobody. Then
// every tensor of the file is aligned in the file too, unlike in torch's.
#include "format/torch_zip_frame.h"

#include <fmt/format.h>

#include <cassert>

#include "format/torch_zip_tensor_pickle.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/checksum.h"
#include "milepost/format/torch_zip.h"
#include "milepost/format/zip.h"

namespace milepost::torch_zip {
namespace {

constexpr std::string_view kFormatVersion = "1", kStorageAlignment = "64", kByteOrder = "little",
                           kVersion = "3\n";
constexpr std::array<std::string_view, 7> kItemNames = {
    "archive/data.pkl", "archive/.format_version", "archive/.storage_alignment",    "archive/byteorder",
    "archive/data/0",   "archive/version",         "archive/.data/serialization_id"};

int64_t length(std::string_view text) { return static_cast<int64_t>(text.size()); }

uint64_t fnv1a(uint64_t hash, Bytes bytes) {
  for (std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}
constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

FrameRecord literal_record(std::string_view name, Bytes literal) {
  return {name, static_cast<int64_t>(literal.size()), literal, 0, 0};
}

// The records of a tensor item; the literals of pickle and serialization id come later.
std::array<FrameRecord, 7> item_records(int64_t pickle_bytes, int64_t payload_bytes) {
  const auto& names = kItemNames;
  return {FrameRecord{names[0], pickle_bytes, {}, 0, 0},
          literal_record(names[1], as_bytes(kFormatVersion)),
          literal_record(names[2], as_bytes(kStorageAlignment)),
          literal_record(names[3], as_bytes(kByteOrder)),
          FrameRecord{names[4], payload_bytes, {}, 0, 0},
          literal_record(names[5], as_bytes(kVersion)),
          FrameRecord{names[6], static_cast<int64_t>(SerializationId().size()), {}, 0, 0}};
}

int64_t payload_bytes(DType dtype, DimsView sizes) { return num_elements(sizes) * dtype_size(dtype); }

// The pickle, in memory that the next call on this thread reuses.
const ByteVector& scratch_pickle(DType dtype, DimsView sizes) {
  thread_local ByteVector pickle;
  pickle.clear();
  append_tensor_pickle(pickle, dtype, sizes);
  return pickle;
}

}  // namespace

Frame::Frame(std::span<FrameRecord> records, bool align_total) : records_(records) {
  assert(records.size() >= kLeadingRecords + kTrailingRecords);
  int64_t position = 0;
  for (FrameRecord& record : records_) {
    record.header_position = position;
    record.payload_position = zip::payload_position(position, length(record.name), record.size);
    position =
        record.payload_position + record.size + zip::descriptor_size(record.size, record.header_position);
    directory_bytes_ += zip::directory_entry_size({record.name, record.header_position, record.size, 0});
  }
  total_ = position + directory_bytes_ + zip::kEndBytes;
  if (align_total) last_pad_ = round_up(total_, zip::kAlignment) - total_;
  records_.back().payload_position += last_pad_;
  directory_position_ = position + last_pad_;
  total_ += last_pad_;
}

void Frame::append_header(ByteVector& out, const FrameRecord& record) const {
  int64_t pad = &record == &records_.back() ? last_pad_ : 0;
  zip::append_local_header(out, record.header_position, record.name, record.size, pad);
}

void Frame::append_whole(ByteVector& out, const FrameRecord& record) const {
  append_header(out, record);
  out.insert(out.end(), record.literal.begin(), record.literal.end());
  zip::append_descriptor(out, crc32(0, record.literal), record.size, record.header_position);
}

void Frame::append_directory(ByteVector& out, std::span<const uint32_t> storage_crcs) const {
  for (size_t i = 0; i < records_.size(); ++i) {
    const FrameRecord& record = records_[i];
    bool is_storage = i >= kLeadingRecords && i + kTrailingRecords < records_.size();
    uint32_t crc = is_storage ? storage_crcs[i - kLeadingRecords] : crc32(0, record.literal);
    zip::append_directory_entry(out, {record.name, record.header_position, record.size, crc});
  }
  zip::append_end(out, directory_position_, directory_bytes_, static_cast<int64_t>(records_.size()));
}

void Frame::append_literal(ByteVector& out, int64_t index, std::span<const uint32_t> storage_crcs) const {
  if (index == 0) {
    for (const FrameRecord& record : records_.first(kLeadingRecords)) append_whole(out, record);
  } else {
    const FrameRecord& previous = storage_record(index - 1);
    zip::append_descriptor(out, storage_crcs[static_cast<size_t>(index - 1)], previous.size,
                           previous.header_position);
  }
  if (index < num_storages()) return append_header(out, storage_record(index));
  for (const FrameRecord& record : records_.last(kTrailingRecords)) append_whole(out, record);
  append_directory(out, storage_crcs);
}

SerializationId serialization_id(std::span<const FrameRecord> records, Bytes pickle) {
  uint64_t names = kFnvStart;
  for (const FrameRecord& record : records)
    names = fnv1a(fnv1a(names, as_bytes(record.name)), as_bytes("\n"));
  SerializationId id;
  fmt::format_to_n(id.data(), id.size(), "{:020}{:020}", names, fnv1a(kFnvStart, pickle));
  return id;
}

ArchiveFrame::ArchiveFrame(std::string_view top, ByteVector pickle, std::span<const std::string_view> keys,
                           std::span<const int64_t> storage_bytes, bool align_total)
    : pickle_(std::move(pickle)),
      records_(make_records(top, keys, storage_bytes)),
      frame_(records_, align_total) {}

std::vector<FrameRecord> ArchiveFrame::make_records(std::string_view top,
                                                    std::span<const std::string_view> keys,
                                                    std::span<const int64_t> storage_bytes) {
  assert(keys.size() == storage_bytes.size());
  std::vector<FrameRecord> records(keys.size() + kLeadingRecords + kTrailingRecords);
  names_.reserve(records.size());
  size_t next = 0;
  auto add = [&](std::string name, Bytes literal, int64_t size) {
    names_.push_back(std::move(name));
    records[next++] = {names_.back(), size, literal, 0, 0};
  };
  auto add_literal = [&](std::string_view name, Bytes literal) {
    add(fmt::format("{}/{}", top, name), literal, static_cast<int64_t>(literal.size()));
  };
  add_literal("data.pkl", pickle_);
  add_literal(".format_version", as_bytes(kFormatVersion));
  add_literal(".storage_alignment", as_bytes(kStorageAlignment));
  add_literal("byteorder", as_bytes(kByteOrder));
  for (size_t i = 0; i < keys.size(); ++i) add(fmt::format("{}/data/{}", top, keys[i]), {}, storage_bytes[i]);
  add_literal("version", as_bytes(kVersion));
  add_literal(".data/serialization_id", std::as_bytes(std::span(id_)));
  id_ = serialization_id(records, pickle_);
  return records;
}

ItemFrame tensor_item_frame(DType dtype, DimsView sizes) {
  auto records =
      item_records(static_cast<int64_t>(scratch_pickle(dtype, sizes).size()), payload_bytes(dtype, sizes));
  Frame frame(records, true);
  ItemFrame item{frame.storage_position(0), frame.storage_bytes(0), 0};
  item.tail_bytes = frame.total() - item.head_bytes - item.payload_bytes;
  return item;
}

void append_tensor_item_head(ByteVector& out, DType dtype, DimsView sizes) {
  const ByteVector& pickle = scratch_pickle(dtype, sizes);
  auto records = item_records(static_cast<int64_t>(pickle.size()), payload_bytes(dtype, sizes));
  records[0].literal = pickle;
  Frame(records, true).append_literal(out, 0, {});
}

void append_tensor_item_tail(ByteVector& out, DType dtype, DimsView sizes, uint32_t payload_crc) {
  const ByteVector& pickle = scratch_pickle(dtype, sizes);
  auto records = item_records(static_cast<int64_t>(pickle.size()), payload_bytes(dtype, sizes));
  records[0].literal = pickle;
  SerializationId id = serialization_id(records, pickle);
  records.back().literal = std::as_bytes(std::span(id));
  Frame(records, true).append_literal(out, 1, std::span(&payload_crc, 1));
}

}  // namespace milepost::torch_zip
