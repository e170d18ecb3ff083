// model.safetensors.index.json, and how tensors are spread over the files that it lists.
//
// 1. {"metadata": {"total_size": BYTES, ...}, "weight_map": {NAME: FILE, ...}}; other members do not matter.
// 2. total_size counts payload bytes. Some writers leave it out or write it as a fraction; it is informative.
// 3. FILE lies in the index's own folder: a plain name, or an index could make us read what its author
// cannot.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>

#include "format/json_events.h"
#include "format/json_text.h"
#include "format/plain_name.h"
#include "format/safetensors_bytes.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost::safetensors {
namespace {

[[noreturn]] void refuse(ErrorCode code, std::string what, std::string_view key) {
  FormatError error(code, std::move(what));
  error.set_key(key);
  throw error;
}

class IndexEvents final : public JsonEvents {
 public:
  explicit IndexEvents(Index* index) : index_(index) {}

  void key(int depth, std::string& name) override {
    if (depth == 1) {
      member_ = name == "metadata" ? kMetadata : name == "weight_map" ? kWeightMap : kOther;
      if (member_ != kOther && std::exchange(seen_[member_], true)) {
        refuse(ErrorCode::kDuplicate, "the name occurs twice", name);
      }
    } else if (depth == 2 && member_ != kOther) {
      key_ = std::move(name);
    }
  }

  void value(int depth, const JsonValue& value) override {
    if (depth == 0 && value.kind != JsonKind::kObject) {
      refuse(ErrorCode::kBadFormat, "the index is not a JSON object", {});
    }
    if (depth == 1 && member_ == kWeightMap && value.kind != JsonKind::kObject) {
      refuse(ErrorCode::kBadFormat, "weight_map is not a JSON object", {});
    }
    if (depth == 1 && member_ == kMetadata && value.kind != JsonKind::kObject &&
        value.kind != JsonKind::kNull) {
      refuse(ErrorCode::kBadFormat, "metadata is not a JSON object", {});
    }
    if (depth == 2 && member_ == kWeightMap) add_weight(value);
    if (depth == 2 && member_ == kMetadata && key_ == "total_size") set_total_size(value);
  }

  void end(int) override {}
  bool has_weight_map() const { return seen_[kWeightMap]; }

 private:
  enum Member : uint8_t { kMetadata, kWeightMap, kOther };

  void add_weight(const JsonValue& value) {
    if (value.kind != JsonKind::kString) refuse(ErrorCode::kBadFormat, "its file name is not a string", key_);
    if (!is_plain_name(*value.text)) {
      refuse(ErrorCode::kPathEscape,
             fmt::format("its file '{}' is not a plain name in the index's folder", printable(*value.text)),
             key_);
    }
    index_->weight_map.emplace_back(std::move(key_), std::move(*value.text));
  }

  void set_total_size(const JsonValue& value) {
    if (value.kind == JsonKind::kUnsigned && value.number <= uint64_t{std::numeric_limits<int64_t>::max()}) {
      index_->total_size = static_cast<int64_t>(value.number);
    } else if (value.kind != JsonKind::kUnsigned && value.kind != JsonKind::kNumber) {
      refuse(ErrorCode::kBadFormat, "total_size is not a number", {});
    }
  }

  Index* index_;
  std::string key_;
  Member member_ = kOther;
  bool seen_[2] = {false, false};
};

void refuse_duplicates(const Index& index) {
  std::vector<std::string_view> names;
  names.reserve(index.weight_map.size());
  for (const auto& [name, file] : index.weight_map) names.push_back(name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse(ErrorCode::kDuplicate, "the name occurs twice", *twice);
}

}  // namespace

Index read_index(const ByteSource& file) {
  try {
    Index index;
    IndexEvents events(&index);
    parse_json(read_all(file, kMaxIndexBytes), 0, events);
    if (!events.has_weight_map()) refuse(ErrorCode::kBadFormat, "the index has no weight_map", {});
    refuse_duplicates(index);
    return index;
  } catch (Error& error) {
    error.set_path(file.name());
    throw;
  }
}

std::string write_index(const Index& index) {
  std::vector<std::reference_wrapper<const std::pair<std::string, std::string>>> sorted(
      index.weight_map.begin(), index.weight_map.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.get() < b.get(); });
  std::string text = "{\n  \"metadata\": {";
  if (index.total_size >= 0) text += fmt::format("\n    \"total_size\": {}\n  ", index.total_size);
  text += "},\n  \"weight_map\": {";
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, file] = sorted[i].get();
    if (!is_utf8(name)) refuse(ErrorCode::kUnsupported, "the name is not UTF-8, which JSON demands", name);
    text += i == 0 ? "\n    " : ",\n    ";
    append_json_string(&text, name, JsonEscapes::kNonAscii);
    text += ": ";
    append_json_string(&text, file, JsonEscapes::kNonAscii);
  }
  text += sorted.empty() ? "}\n}" : "\n  }\n}";
  return text;
}

std::vector<std::vector<int64_t>> assign_shards(const std::vector<OutTensor>& tensors,
                                                int64_t max_shard_bytes) {
  if (max_shard_bytes < 1)
    throw ValueError(fmt::format("a shard of {} bytes holds nothing", max_shard_bytes));
  std::vector<std::vector<int64_t>> shards;
  std::vector<int64_t> open;
  int64_t open_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = payload_bytes(tensors[i]);
    const auto index = static_cast<int64_t>(i);
    if (bytes > max_shard_bytes) {
      shards.push_back({index});  // the open shard goes on behind it
      continue;
    }
    if (bytes > max_shard_bytes - open_bytes) {
      shards.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(index);
    open_bytes += bytes;
  }
  if (!open.empty() || shards.empty()) shards.push_back(std::move(open));
  return shards;
}

std::string shard_name(int64_t shard, int64_t num_shards) {
  if (num_shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_shards);
}

}  // namespace milepost::safetensors
