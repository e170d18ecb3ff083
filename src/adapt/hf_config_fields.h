// Typed access to the fields of an untrusted `config.json`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost::adapt {

// A JSON object, keys in the order of the text. Throws FormatError for anything else, for a name that occurs
// twice in an object (readers disagree on which counts), and for what no config needs: more than 16 MiB, 32
// levels, 10000 names or a million values.
nlohmann::ordered_json parse_hf_config(std::string_view text);

// The fields of one object; null counts as absent, as for transformers. All throw FormatError, with the
// field's full name as its key, for a value of another type or outside of [min, max]. The object must outlive
// it.
class HfConfigFields {
 public:
  // `prefix`: what full names start with, "rope_scaling." for that object's.
  explicit HfConfigFields(const nlohmann::ordered_json* object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  bool contains(std::string_view name) const;  // also when it is null
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max) const;
  int64_t required_integer(std::string_view name, int64_t min, int64_t max) const;
  std::optional<double> number(std::string_view name, double min, double max) const;  // integers too
  std::optional<bool> flag(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  std::optional<HfConfigFields> object(std::string_view name) const;
  // Two integers in an array.
  std::optional<std::pair<int64_t, int64_t>> pair(std::string_view name, int64_t min, int64_t max) const;

  [[noreturn]] void refuse(ErrorCode code, std::string_view name, std::string what,
                           std::string hint = {}) const;

 private:
  const nlohmann::ordered_json* find(std::string_view name) const;  // nullptr: absent or null
  int64_t checked(std::string_view name, const nlohmann::ordered_json& value, int64_t min, int64_t max) const;

  const nlohmann::ordered_json* object_;
  std::string prefix_;
};

}  // namespace milepost::adapt
