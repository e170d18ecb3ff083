#include "text/json_node.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace milepost::text {
namespace {

// RFC 6901: '~' and '/' are escaped.
std::string below(const std::string& pointer, std::string_view name) {
  std::string result = pointer + "/";
  for (const char c : name) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    FormatError refusal(ErrorCode::kBadFormat, "not valid JSON", "copy the file again");
    refusal.set_offset(error.byte == 0 ? 0 : static_cast<int64_t>(error.byte) - 1);
    throw refusal;
  }
}

bool JsonNode::is_null() const { return value_->is_null(); }
bool JsonNode::is_object() const { return value_->is_object(); }
bool JsonNode::is_array() const { return value_->is_array(); }
bool JsonNode::is_string() const { return value_->is_string(); }
bool JsonNode::is_zero() const { return value_->is_number() && value_->get<double>() == 0; }

std::optional<JsonNode> JsonNode::find(std::string_view name) const {
  if (!value_->is_object()) refuse_type("an object");
  const auto member = value_->find(name);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonNode(*member, below(pointer_, name));
}

JsonNode JsonNode::at(std::string_view name) const {
  const std::optional<JsonNode> member = find(name);
  if (!member) {
    FormatError refusal(ErrorCode::kBadFormat, "the key is absent");
    refusal.set_key(below(pointer_, name));
    throw refusal;
  }
  return *member;
}

size_t JsonNode::size() const {
  if (!value_->is_array()) refuse_type("an array");
  return value_->size();
}

JsonNode JsonNode::at(size_t index) const {
  return JsonNode((*value_)[index], fmt::format("{}/{}", pointer_, index));
}

void JsonNode::for_each_member(const std::function<void(const std::string&, const JsonNode&)>& visit) const {
  if (!value_->is_object()) refuse_type("an object");
  for (const auto& [name, member] : value_->items()) visit(name, JsonNode(member, below(pointer_, name)));
}

const std::string& JsonNode::text() const {
  if (!value_->is_string()) refuse_type("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::flag() const {
  if (!value_->is_boolean()) refuse_type("true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t min, int64_t max) const {
  const bool is_huge = value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX};
  if (!value_->is_number_integer() || is_huge || value_->get<int64_t>() < min ||
      value_->get<int64_t>() > max) {
    refuse_type(fmt::format("an integer in [{}, {}]", min, max));
  }
  return value_->get<int64_t>();
}

bool JsonNode::flag(std::string_view name, bool otherwise) const {
  const std::optional<JsonNode> member = find(name);
  return member ? member->flag() : otherwise;
}

std::optional<std::string> JsonNode::text(std::string_view name) const {
  const std::optional<JsonNode> member = find(name);
  if (!member) return std::nullopt;
  return member->text();
}

FormatError JsonNode::error(ErrorCode code, std::string what, std::string hint) const {
  FormatError result(code, std::move(what), std::move(hint));
  result.set_key(pointer_.empty() ? "/" : pointer_);
  return result;
}

FormatError JsonNode::unknown(std::string_view what, std::string_view name) const {
  return error(ErrorCode::kUnsupported, fmt::format("{} '{}' is not supported", what, printable(name)));
}

void JsonNode::refuse_type(std::string_view wanted) const {
  throw error(ErrorCode::kBadFormat, fmt::format("want {}, found {}", wanted,
                                                 value_->is_number() ? value_->dump() : value_->type_name()));
}

}  // namespace milepost::text
