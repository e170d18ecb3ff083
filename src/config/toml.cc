#include "config/toml.h"

#include <fmt/format.h>

#include "milepost/base/error.h"

// toml++ 3.3.0 asserts what wrong input such as "[:" makes false, and without assertions assumes it. Here
// they throw, in every build.
#undef NDEBUG
namespace milepost::config {
struct BrokenAssumption {};
constexpr void assume(bool holds) {
  if (!holds) throw BrokenAssumption();
}
}  // namespace milepost::config
#define TOML_ASSERT(condition) ::milepost::config::assume(static_cast<bool>(condition))
#include <toml++/toml.h>

namespace milepost::config {
namespace {

// toml++ refuses nesting beyond 256, so this recursion is bounded.
Json to_json(const toml::node& node, const std::string& path) {
  if (const toml::table* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      object[name] = to_json(value, path.empty() ? name : path + "." + name);
    }
    return object;
  }
  if (const toml::array* array = node.as_array()) {
    Json list = Json::array();
    for (const toml::node& item : *array) list.push_back(to_json(item, path));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return integer->get();
  if (const auto* number = node.as_floating_point()) return Value<double>::to_json(number->get());
  if (const auto* truth = node.as_boolean()) return truth->get();
  FormatError error(ErrorCode::kUnsupported, "no field is a date or a time");
  error.set_key(path);
  throw error;
}

}  // namespace

Json parse_toml(std::string_view text) {
  try {
    return to_json(toml::parse(text), "");
  } catch (const BrokenAssumption&) {
    throw FormatError(ErrorCode::kBadFormat, "this is not TOML");
  } catch (const toml::parse_error& error) {
    const toml::source_position place = error.source().begin;
    throw FormatError(ErrorCode::kBadFormat, fmt::format("this is not TOML: line {}, column {}: {}",
                                                         place.line, place.column, error.description()));
  }
}

}  // namespace milepost::config
