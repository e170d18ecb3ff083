// DCP_SHARDING_INFO: a JSON text inside a JSON string, {NAME: {"saved_offsets": [0, 4]}, ...}: where the
// entry NAME of this file starts in the whole tensor, one number a dimension. The whole tensor's shape is
// nowhere: it is the largest end over all files.
#include "format/safetensors_sharding.h"

#include <fmt/format.h>

#include <limits>
#include <unordered_set>

#include "format/json_events.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::safetensors {
namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& what, std::string_view key) {
  FormatError error(code, fmt::format("{}: {}", kShardingInfoKey, what));
  error.set_key(key);
  throw error;
}

class ShardingEvents final : public JsonEvents {
 public:
  explicit ShardingEvents(const std::function<Entry*(std::string_view)>& find) : find_(find) {}

  void key(int depth, std::string& name) override {
    if (depth == 1) {
      name_ = std::move(name);
      entry_ = find_(name_);
      offsets_seen_ = in_offsets_ = false;
      offsets_.clear();
      if (entry_ == nullptr && strangers_.count++ == 0) strangers_.first = name_;
      if (entry_ != nullptr && !seen_.insert(entry_).second) {
        refuse(ErrorCode::kDuplicate, "the name occurs twice", name_);
      }
    } else if (depth == 2) {
      in_offsets_ = name == "saved_offsets";
      if (in_offsets_ && offsets_seen_) refuse(ErrorCode::kDuplicate, "saved_offsets occurs twice", name_);
      offsets_seen_ |= in_offsets_;
    }
  }

  void value(int depth, const JsonValue& value) override {
    if (depth < 2 && value.kind != JsonKind::kObject) {
      refuse(ErrorCode::kBadFormat, "not an object of objects", depth == 0 ? "__metadata__" : name_);
    }
    if (depth == 2 && in_offsets_ && value.kind != JsonKind::kArray) {
      refuse(ErrorCode::kBadFormat, "saved_offsets is not a list", name_);
    }
    if (depth != 3 || !in_offsets_) return;
    const bool fits =
        value.kind == JsonKind::kUnsigned && value.number <= uint64_t{std::numeric_limits<int64_t>::max()};
    if (!fits) refuse(ErrorCode::kBadFormat, "saved_offsets must hold integers from 0 to 2^63 - 1", name_);
    if (offsets_.size() == kMaxDims) {
      refuse(ErrorCode::kBadFormat, fmt::format("more than {} saved_offsets", kMaxDims), name_);
    }
    offsets_.push_back(static_cast<int64_t>(value.number));
  }

  void end(int depth) override {
    if (depth != 1 || entry_ == nullptr || !offsets_seen_) return;
    const Dims& shape = entry_->shape;
    if (offsets_.size() != shape.size()) {
      refuse(ErrorCode::kBadFormat,
             fmt::format("{} saved_offsets for a tensor of shape {}", offsets_.size(), dims_text(shape)),
             name_);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t extent;
      if (!checked_add(offsets_[d], shape[d], &extent)) {
        refuse(ErrorCode::kTooLarge, fmt::format("offset {} is too large", offsets_[d]), name_);
      }
    }
    entry_->saved_offsets = offsets_;
  }

  const Strangers& strangers() const { return strangers_; }

 private:
  const std::function<Entry*(std::string_view)>& find_;
  std::unordered_set<const Entry*> seen_;
  Strangers strangers_;
  std::string name_;
  Entry* entry_ = nullptr;
  Dims offsets_;
  bool in_offsets_ = false, offsets_seen_ = false;
};

}  // namespace

Strangers read_sharding_info(std::string_view text, const std::function<Entry*(std::string_view)>& find) {
  ShardingEvents events(find);
  try {
    parse_json(as_bytes(text), 0, events);
  } catch (Error& error) {
    if (!error.key().empty()) throw;
    refuse(ErrorCode::kBadFormat, fmt::format("{} at character {}", error.summary(), error.offset()),
           "__metadata__");
  }
  return events.strangers();
}

}  // namespace milepost::safetensors
