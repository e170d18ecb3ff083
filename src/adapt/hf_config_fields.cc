#include "adapt/hf_config_fields.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace milepost::adapt {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr size_t kMaxDepth = 32;
constexpr int64_t kMaxNames = 10000;  // ordered_json looks names up one by one: more would take long
constexpr int64_t kMaxValues = 1000000;

// Watches the parser, which asks it before it stores anything.
class Limits {
 public:
  void see(Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::key) {
      see_name(parsed.get_ref<const std::string&>());
    } else if (event == Event::object_start || event == Event::array_start) {
      names_.emplace_back();
      if (names_.size() > kMaxDepth) too_large(fmt::format("{} levels", kMaxDepth));
      count_value();
    } else if (event == Event::object_end || event == Event::array_end) {
      names_.pop_back();
    } else {
      count_value();
    }
  }

 private:
  [[noreturn]] static void too_large(std::string_view limit) {
    throw FormatError(ErrorCode::kTooLarge, fmt::format("more than {}, which no config needs", limit));
  }

  void count_value() {
    if (++num_values_ > kMaxValues) too_large(fmt::format("{} values", kMaxValues));
  }

  void see_name(const std::string& name) {
    if (++num_names_ > kMaxNames) too_large(fmt::format("{} names", kMaxNames));
    if (names_.back().insert(name).second) return;
    FormatError error(ErrorCode::kDuplicate, "the name occurs twice", "remove one of the two");
    error.set_key(name);
    throw error;
  }

  std::vector<std::set<std::string>> names_;  // of each object that is open; empty for arrays
  int64_t num_names_ = 0, num_values_ = 0;
};

}  // namespace

Json parse_hf_config(std::string_view text) {
  if (text.size() > kMaxBytes) {
    throw FormatError(ErrorCode::kTooLarge,
                      fmt::format("{} bytes; a config has at most {}", text.size(), kMaxBytes));
  }
  Limits limits;
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), [&](int, Json::parse_event_t event, const Json& parsed) {
      limits.see(event, parsed);
      return true;
    });
  } catch (const Json::parse_error& error) {
    FormatError refusal(ErrorCode::kBadFormat, "not valid JSON");
    refusal.set_offset(error.byte == 0 ? 0 : static_cast<int64_t>(error.byte) - 1);
    throw refusal;
  } catch (const Json::exception& error) {
    throw FormatError(ErrorCode::kBadFormat, "JSON with a number that no 64-bit float holds");
  }
  if (!json.is_object()) throw FormatError(ErrorCode::kBadFormat, "not a JSON object");
  return json;
}

const Json* HfConfigFields::find(std::string_view name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool HfConfigFields::contains(std::string_view name) const { return object_->contains(name); }

void HfConfigFields::refuse(ErrorCode code, std::string_view name, std::string what, std::string hint) const {
  FormatError error(code, std::move(what), std::move(hint));
  error.set_key(prefix_ + std::string(name));
  throw error;
}

int64_t HfConfigFields::checked(std::string_view name, const Json& value, int64_t min, int64_t max) const {
  if (!value.is_number_integer()) refuse(ErrorCode::kBadFormat, name, "not an integer");
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  const bool wraps = value.is_number_unsigned() && value.get<uint64_t>() > kLargest;
  const int64_t number = wraps ? 0 : value.get<int64_t>();
  if (wraps || number < min || number > max) {
    refuse(ErrorCode::kOutOfBounds, name, fmt::format("{} is not in [{}, {}]", value.dump(), min, max));
  }
  return number;
}

std::optional<int64_t> HfConfigFields::integer(std::string_view name, int64_t min, int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  return checked(name, *value, min, max);
}

int64_t HfConfigFields::required_integer(std::string_view name, int64_t min, int64_t max) const {
  if (const auto value = integer(name, min, max)) return *value;
  refuse(ErrorCode::kMissingKey, name, "the field is missing", "add it, or name the model's --flavor");
}

std::optional<double> HfConfigFields::number(std::string_view name, double min, double max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(ErrorCode::kBadFormat, name, "not a number");
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) {
    refuse(ErrorCode::kOutOfBounds, name, fmt::format("{} is not in [{}, {}]", number, min, max));
  }
  return number;
}

std::optional<bool> HfConfigFields::flag(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(ErrorCode::kBadFormat, name, "neither true nor false");
  return value->get<bool>();
}

std::optional<std::string> HfConfigFields::text(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(ErrorCode::kBadFormat, name, "not a string");
  return value->get<std::string>();
}

std::optional<HfConfigFields> HfConfigFields::object(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(ErrorCode::kBadFormat, name, "not a JSON object");
  return HfConfigFields(value, prefix_ + std::string(name) + ".");
}

std::optional<std::pair<int64_t, int64_t>> HfConfigFields::pair(std::string_view name, int64_t min,
                                                                int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->size() != 2) refuse(ErrorCode::kBadFormat, name, "not two integers");
  return std::pair(checked(name, (*value)[0], min, max), checked(name, (*value)[1], min, max));
}

}  // namespace milepost::adapt
