// Reading a safetensors header.
//
// 1. Bytes 0-7: the length n of the header, little-endian, at most 100,000,000.
// 2. Bytes 8 to 8 + n: one JSON object that starts with '{' and may be followed by spaces:
//      {"__metadata__": {string: string, ...},
//       NAME: {"dtype": "BF16", "shape": [7, 6], "data_offsets": [0, 84]}, ...}
//    Names are unique. Members come in any order. `data_offsets` is [begin, end), counted from byte 8 + n.
// 3. The data, to the end of the file: the ranges cover it exactly once, so sorted by begin each starts
//    where the one before ended. Elements are row-major and little-endian. A range may be empty.
// 4. F4 packs two values a byte, in pairs along the last dimension; its shape counts values, where ours
//    (torch's) counts bytes. F6 types pack four values in three bytes.
// 5. Files written through DCP hold in __metadata__ the text DCP_SHARDING_INFO (safetensors_sharding.cc).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "format/json_events.h"
#include "format/safetensors_names.h"
#include "format/safetensors_sharding.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost::safetensors {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

[[noreturn]] void refuse(ErrorCode code, std::string what, std::string_view key = {}, std::string hint = {}) {
  FormatError error(code, std::move(what), std::move(hint));
  if (!key.empty()) error.set_key(key);
  throw error;
}

std::string known_dtypes() {
  std::string names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const std::string_view name = dtype_info(static_cast<DType>(i)).safetensors;
    if (!name.empty()) names += (names.empty() ? "" : " ") + std::string(name);
  }
  return names;
}

// The number in a shape or offset, which JSON gives as anything.
int64_t whole_number(const JsonValue& value, std::string_view field, std::string_view key) {
  if (value.kind == JsonKind::kUnsigned && value.number <= std::numeric_limits<int64_t>::max()) {
    return static_cast<int64_t>(value.number);
  }
  std::string found = "something else";
  if (value.kind == JsonKind::kUnsigned) found = std::to_string(value.number);
  if (value.kind == JsonKind::kNumber) found = printable(*value.text, 40);
  refuse(ErrorCode::kBadFormat, fmt::format("{} must hold integers from 0 to 2^63 - 1, not {}", field, found),
         key);
}

// Collects the entries; their offsets still count from the start of the data.
class HeaderEvents final : public JsonEvents {
 public:
  explicit HeaderEvents(Header* header) : header_(header) {}

  void key(int depth, std::string& name) override;
  void value(int depth, const JsonValue& value) override;
  void end(int depth) override;
  const std::string& unknown_field() const { return unknown_field_; }

 private:
  enum Field : uint8_t { kDType = 1, kShape = 2, kDataOffsets = 4, kUnknown = 0 };

  void start_member(const JsonValue& value);
  void metadata_value(const JsonValue& value);
  void field_value(const JsonValue& value);
  void element(const JsonValue& value);
  void finish_entry();

  Header* header_;
  Entry entry_;
  std::string metadata_key_, unknown_field_;
  Dims range_;
  uint8_t fields_seen_ = 0;
  Field field_ = kUnknown;
  bool in_metadata_ = false, metadata_seen_ = false;
};

void HeaderEvents::key(int depth, std::string& name) {
  if (depth == 1) {
    in_metadata_ = name == kMetadataKey;
    if (in_metadata_ && metadata_seen_) refuse(ErrorCode::kDuplicate, "the name occurs twice", kMetadataKey);
    metadata_seen_ |= in_metadata_;
    entry_ = {};
    entry_.name = std::move(name);
    range_.clear();
    fields_seen_ = 0;
  } else if (depth == 2 && in_metadata_) {
    metadata_key_ = std::move(name);
  } else if (depth == 2) {
    field_ = name == "dtype"          ? kDType
             : name == "shape"        ? kShape
             : name == "data_offsets" ? kDataOffsets
                                      : kUnknown;
    if ((fields_seen_ & field_) != 0) {
      refuse(ErrorCode::kDuplicate, fmt::format("{} occurs twice", name), entry_.name);
    }
    fields_seen_ |= field_;
    if (field_ == kUnknown && unknown_field_.empty()) {
      unknown_field_ = fmt::format("'{}' of '{}'", printable(name, 40), printable(entry_.name, 100));
    }
  }
}

void HeaderEvents::value(int depth, const JsonValue& value) {
  switch (depth) {
    case 0:
      if (value.kind != JsonKind::kObject) refuse(ErrorCode::kBadFormat, "the header is not a JSON object");
      return;
    case 1:
      return start_member(value);
    case 2:
      return in_metadata_ ? metadata_value(value) : field_value(value);
    case 3:
      return element(value);
    default:
      return;  // inside an unknown field
  }
}

void HeaderEvents::start_member(const JsonValue& value) {
  const bool absent_metadata =
      in_metadata_ && value.kind == JsonKind::kNull;  // as the reference library has it
  if (value.kind == JsonKind::kObject || absent_metadata) return;
  refuse(ErrorCode::kBadFormat,
         in_metadata_ ? "the metadata is not a JSON object" : "the tensor's entry is not a JSON object",
         entry_.name);
}

void HeaderEvents::metadata_value(const JsonValue& value) {
  if (value.kind != JsonKind::kString) {
    refuse(ErrorCode::kBadFormat,
           fmt::format("the value of '{}' is not a string", printable(metadata_key_, 100)), kMetadataKey);
  }
  if (!header_->metadata.try_emplace(metadata_key_, std::move(*value.text)).second) {
    refuse(ErrorCode::kDuplicate, fmt::format("'{}' occurs twice", printable(metadata_key_, 100)),
           kMetadataKey);
  }
}

void HeaderEvents::field_value(const JsonValue& value) {
  if (field_ == kUnknown) return;
  if (field_ != kDType) {
    if (value.kind == JsonKind::kArray) return;
    refuse(ErrorCode::kBadFormat,
           fmt::format("{} is not a list of integers", field_ == kShape ? "shape" : "data_offsets"),
           entry_.name);
  }
  if (value.kind != JsonKind::kString) refuse(ErrorCode::kBadFormat, "dtype is not a string", entry_.name);
  const std::optional<DType> dtype = dtype_from_safetensors(*value.text);
  if (!dtype) {
    refuse(ErrorCode::kUnsupported, fmt::format("unknown dtype '{}'", printable(*value.text, 40)),
           entry_.name, "known are " + known_dtypes());
  }
  entry_.dtype = *dtype;
}

void HeaderEvents::element(const JsonValue& value) {
  if (in_metadata_ || field_ == kUnknown || field_ == kDType) return;
  const bool shape = field_ == kShape;
  Dims& list = shape ? entry_.shape : range_;
  if (list.size() == (shape ? kMaxDims : 2)) {
    refuse(
        ErrorCode::kBadFormat,
        shape ? fmt::format("more than {} dimensions", kMaxDims) : "data_offsets holds more than two numbers",
        entry_.name);
  }
  list.push_back(whole_number(value, shape ? "shape" : "data_offsets", entry_.name));
}

void HeaderEvents::end(int depth) {
  if (depth == 1 && !in_metadata_) finish_entry();
}

// Turns the shape into ours and returns the bytes that it takes.
int64_t shape_bytes(Entry* entry) {
  Dims factors;  // a dimension of 0 must not hide a product that nobody could compute with
  if (entry->dtype == DType::kFloat4E2M1FNx2) {
    if (entry->shape.empty() || entry->shape.back() % 2 != 0) {
      refuse(ErrorCode::kUnsupported,
             fmt::format("shape {} of F4 has no even last dimension, so its values do not pair up to bytes",
                         dims_text(entry->shape)),
             entry->name);
    }
    entry->shape.back() /= 2;
  }
  for (int64_t size : entry->shape) factors.push_back(std::max<int64_t>(size, 1));
  int64_t product, elements;
  if (!checked_product(factors, &product) || !checked_mul(product, dtype_info(entry->dtype).bits, &product) ||
      !checked_product(entry->shape, &elements)) {
    refuse(ErrorCode::kTooLarge, fmt::format("shape {} is too large", dims_text(entry->shape)), entry->name);
  }
  const std::optional<int64_t> bytes = dtype_bytes(entry->dtype, elements);
  if (!bytes) {
    refuse(ErrorCode::kBadFormat,
           fmt::format("shape {} of {} does not fill whole bytes", dims_text(entry->shape),
                       dtype_info(entry->dtype).safetensors),
           entry->name);
  }
  return *bytes;
}

void HeaderEvents::finish_entry() {
  constexpr uint8_t kAll = kDType | kShape | kDataOffsets;
  if (fields_seen_ != kAll) {
    const std::string_view missing = (fields_seen_ & kDType) == 0   ? "dtype"
                                     : (fields_seen_ & kShape) == 0 ? "shape"
                                                                    : "data_offsets";
    refuse(ErrorCode::kBadFormat, fmt::format("the entry has no {}", missing), entry_.name);
  }
  if (range_.size() != 2 || range_[0] > range_[1]) {
    refuse(ErrorCode::kBadFormat,
           fmt::format("data_offsets {} is not [begin, end] with begin <= end", dims_text(range_)),
           entry_.name);
  }
  entry_.offset = range_[0];
  entry_.length = range_[1] - range_[0];
  const Dims written_shape = entry_.shape;
  const int64_t bytes = shape_bytes(&entry_);
  if (bytes != entry_.length) {
    refuse(
        ErrorCode::kBadFormat,
        fmt::format("data_offsets [{}, {}] hold {} bytes, but {} of shape {} takes {}", range_[0], range_[1],
                    entry_.length, dtype_info(entry_.dtype).safetensors, dims_text(written_shape), bytes),
        entry_.name);
  }
  header_->entries.push_back(std::move(entry_));
}

// Sorts the entries by where they lie, checks that they cover [0, data_bytes) exactly once and makes their
// offsets count from the start of the file.
void place_entries(std::vector<Entry>* entries, int64_t data_start, int64_t data_bytes) {
  std::stable_sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  });
  int64_t covered = 0;
  std::string_view before;
  for (Entry& entry : *entries) {
    if (!range_fits(entry.offset, entry.length, data_bytes)) {
      refuse(ErrorCode::kTruncated,
             fmt::format(
                 "the tensor's data, bytes {} to {} after the header, end after the file, which has {} there",
                 entry.offset, entry.offset + entry.length, data_bytes),
             entry.name, "copy or download the file again");
    }
    if (entry.offset < covered) {
      refuse(ErrorCode::kOverlap,
             fmt::format("the tensor's data start at byte {} after the header, inside '{}', which ends at {}",
                         entry.offset, printable(before), covered),
             entry.name);
    }
    if (entry.offset > covered) {
      refuse(ErrorCode::kHole,
             fmt::format("bytes {} to {} after the header, before this tensor, belong to no tensor", covered,
                         entry.offset),
             entry.name);
    }
    covered += entry.length;
    entry.offset += data_start;
    before = entry.name;
  }
  if (covered != data_bytes) {
    refuse(ErrorCode::kHole,
           fmt::format("{} bytes at the end of the file, after the last tensor, belong to no tensor",
                       data_bytes - covered),
           before);
  }
}

// The header's bytes: `file`'s own when it lies in memory, else read into `*storage`.
Bytes read_json(const ByteSource& file, ByteVector* storage) {
  if (file.size() < kLengthBytes) {
    refuse(
        ErrorCode::kTruncated,
        fmt::format("a safetensors file starts with an 8-byte length, this one has {} bytes", file.size()));
  }
  uint64_t length;
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  static_assert(std::endian::native == std::endian::little);
  const int64_t left = file.size() - kLengthBytes;
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    refuse(ErrorCode::kTooLarge,
           fmt::format("the header's length, {} bytes, is over the format's limit of {}", length,
                       kMaxHeaderBytes),
           {}, "check that this is a safetensors file");
  }
  if (length > static_cast<uint64_t>(left)) {
    refuse(ErrorCode::kTruncated,
           fmt::format("the header's length is {} bytes, the file has {} left", length, left), {},
           "copy or download the file again");
  }
  if (file.data() != nullptr) return {file.data() + kLengthBytes, static_cast<size_t>(length)};
  storage->resize(static_cast<size_t>(length));
  file.read_at(kLengthBytes, *storage);
  return *storage;
}

void apply_sharding_info(Header* header) {
  const NameIndex names(&header->entries);
  const Strangers strangers = read_sharding_info(header->metadata.at(std::string(kShardingInfoKey)),
                                                 [&](std::string_view name) { return names.find(name); });
  if (strangers.count == 0) return;
  header->warnings.push_back(fmt::format("{} names {} tensors that the file does not hold: first '{}'",
                                         kShardingInfoKey, strangers.count, printable(strangers.first)));
}

Header parse_header(const ByteSource& file) {
  ByteVector storage;
  const Bytes json = read_json(file, &storage);
  const std::string_view text = as_text(json);
  Header header;
  header.header_bytes = kLengthBytes + static_cast<int64_t>(json.size());
  if (!text.starts_with('{')) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos ||
        text[text.find_first_not_of(" \t\r\n")] != '{') {
      refuse(ErrorCode::kBadFormat, "the header is not a JSON object: it does not start with '{'");
    }
    header.warnings.push_back("the header starts with white space instead of '{'");
  }

  HeaderEvents events(&header);
  parse_json(json, kLengthBytes, events);
  if (!events.unknown_field().empty()) {
    header.warnings.push_back("fields that the format does not define are ignored: first " +
                              events.unknown_field());
  }
  if (const std::string* twice = NameIndex(&header.entries).duplicate()) {
    refuse(ErrorCode::kDuplicate, "the name occurs twice", *twice);
  }
  place_entries(&header.entries, header.header_bytes, file.size() - header.header_bytes);
  if (header.metadata.contains(std::string(kShardingInfoKey))) apply_sharding_info(&header);
  return header;
}

}  // namespace

Header read_header(const ByteSource& file) {
  try {
    return parse_header(file);
  } catch (Error& error) {
    error.set_path(file.name());
    throw;
  }
}

}  // namespace milepost::safetensors
