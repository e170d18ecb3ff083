#include "milepost/engine/save_bytes.h"

#include <cstring>

#include "milepost/base/error.h"

namespace milepost {
namespace {

class Writer {
 public:
  void number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void text(std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    bytes_.append(value);
  }
  void digest(const Sha256Digest& value) {
    bytes_.append(reinterpret_cast<const char*>(value.data()), value.size());
  }
  void numbers(DimsView values) {
    for (const int64_t value : values) number(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  // A number of things that take `size` bytes each at least.
  int64_t count(size_t size) {
    const int64_t value = number();
    if (value < 0 || static_cast<uint64_t>(value) > bytes_.size() / size) {
      throw FormatError(ErrorCode::kTruncated, "a rank's part of the save names more than it holds");
    }
    return value;
  }
  Sha256Digest digest() {
    Sha256Digest value;
    std::memcpy(value.data(), take(value.size()).data(), value.size());
    return value;
  }
  std::string_view text() { return take(static_cast<size_t>(count(1))); }
  Dims numbers(int64_t count) {
    Dims values;
    for (int64_t i = 0; i < count; ++i) values.push_back(number());
    return values;
  }
  void finish() const {
    if (!bytes_.empty()) {
      throw FormatError(ErrorCode::kBadFormat, "a rank's part of the save goes on after its end");
    }
  }

 private:
  std::string_view take(size_t size) {
    if (size > bytes_.size()) {
      throw FormatError(ErrorCode::kTruncated, "a rank's part of the save is cut short");
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
};

}  // namespace

std::string encode_local_plan(const LocalPlan& plan) {
  Writer writer;
  writer.number(static_cast<int64_t>(plan.names().size()));
  for (size_t i = 0; i < plan.names().size(); ++i) writer.text(plan.names()[static_cast<int32_t>(i)]);
  writer.number(static_cast<int64_t>(plan.items().size()));
  for (const LocalPlan::Item& item : plan.items()) {
    writer.number(item.name);
    writer.number(item.ndim);
    if (item.ndim < 0) continue;
    writer.number(static_cast<int64_t>(item.dtype));
    writer.numbers(plan.shape(item));
    writer.numbers(plan.offsets(item));
    writer.numbers(plan.sizes(item));
  }
  return writer.take();
}

LocalPlan decode_local_plan(std::string_view bytes) {
  Reader reader(bytes);
  std::vector<std::string_view> names(static_cast<size_t>(reader.count(sizeof(int64_t))));
  for (std::string_view& name : names) name = reader.text();
  LocalPlan plan;
  const int64_t num_items = reader.count(2 * sizeof(int64_t));
  for (int64_t i = 0; i < num_items; ++i) {
    const int64_t name = reader.number(), ndim = reader.number();
    if (name < 0 || name >= static_cast<int64_t>(names.size()) || ndim < -1 || ndim > 64) {
      throw FormatError(ErrorCode::kBadFormat, "a rank's part of the save names what it does not hold");
    }
    if (ndim < 0) {
      plan.add_object(names[static_cast<size_t>(name)]);
      continue;
    }
    const int64_t dtype = reader.number();
    if (dtype < 0 || dtype >= kNumDTypes) {
      throw FormatError(ErrorCode::kBadFormat, "a rank's part of the save has an unknown dtype");
    }
    const Dims shape = reader.numbers(ndim);
    Box box;
    box.offsets = reader.numbers(ndim);
    box.sizes = reader.numbers(ndim);
    plan.add_tensor(names[static_cast<size_t>(name)], static_cast<DType>(dtype), shape, box);
  }
  reader.finish();
  return plan;
}

std::string encode_rank_result(const RankResult& result) {
  Writer writer;
  writer.number(static_cast<int64_t>(result.files.size()));
  for (size_t i = 0; i < result.files.size(); ++i) {
    writer.text(result.files[i]);
    writer.number(result.file_sizes[i]);
  }
  writer.number(static_cast<int64_t>(result.digests.size()));
  for (const Sha256Digest& digest : result.digests) writer.digest(digest);
  writer.number(static_cast<int64_t>(result.places.size()));
  for (const RankResult::Place& place : result.places) {
    writer.number(place.file);
    writer.number(place.offset);
    writer.number(place.length);
  }
  return writer.take();
}

RankResult decode_rank_result(std::string_view bytes) {
  Reader reader(bytes);
  RankResult result;
  const int64_t num_files = reader.count(2 * sizeof(int64_t));
  for (int64_t i = 0; i < num_files; ++i) {
    result.files.emplace_back(reader.text());
    result.file_sizes.push_back(reader.number());
  }
  const int64_t num_digests = reader.count(sizeof(Sha256Digest));
  if (num_digests != 0 && num_digests != num_files) {
    throw FormatError(ErrorCode::kBadFormat, "a rank's part of the save has digests of some files only");
  }
  for (int64_t i = 0; i < num_digests; ++i) result.digests.push_back(reader.digest());
  const int64_t num_places = reader.count(3 * sizeof(int64_t));
  for (int64_t i = 0; i < num_places; ++i) {
    const int64_t file = reader.number(), offset = reader.number(), length = reader.number();
    if (file < 0 || file >= num_files || offset < 0 || length < 0 ||
        length > result.file_sizes[static_cast<size_t>(file)] - offset) {
      throw FormatError(ErrorCode::kOutOfBounds, "a rank's part of the save lies outside its files");
    }
    result.places.push_back({static_cast<int32_t>(file), offset, length});
  }
  reader.finish();
  return result;
}

}  // namespace milepost
