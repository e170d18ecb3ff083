// JsonNode: a value in an untrusted JSON file together with its JSON pointer, so that every refusal says
// where.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost::text {

// The value of `text`; for a name that occurs twice in an object the last counts. Throws FormatError
// kBadFormat with the offset.
nlohmann::json parse_json(std::string_view text);

// Reads throw FormatError kBadFormat, the pointer as its key ("/model/merges/3"), for a value of another
// type. The value must outlive the node.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string pointer) : value_(&value), pointer_(std::move(pointer)) {}

  const std::string& pointer() const { return pointer_; }
  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_zero() const;  // the number 0

  // A member of an object; nullopt when it is absent or null.
  std::optional<JsonNode> find(std::string_view name) const;
  JsonNode at(std::string_view name) const;  // an absent or null one is refused
  size_t size() const;                       // of an array
  JsonNode at(size_t index) const;
  void for_each_member(const std::function<void(const std::string&, const JsonNode&)>& visit) const;

  const std::string& text() const;
  bool flag() const;
  int64_t integer(int64_t min, int64_t max) const;

  // Members of an object with what they are when absent or null.
  bool flag(std::string_view name, bool otherwise) const;
  std::optional<std::string> text(std::string_view name) const;

  // An error about this value, for the caller to throw.
  FormatError error(ErrorCode code, std::string what, std::string hint = {}) const;
  // The kUnsupported error for a component that is not known: "normalizer 'Nmt' is not supported".
  FormatError unknown(std::string_view what, std::string_view name) const;

 private:
  [[noreturn]] void refuse_type(std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string pointer_;
};

}  // namespace milepost::text
