#include "config/value_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "config/override_imports.h"
#include "config/python_text.h"
#include "milepost/base/error.h"

namespace milepost::config {
namespace {

using Words = std::span<const std::string>;

// A default that a shell would not take as one plain word is shown in quotes.
std::string shell_text(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
  return !text.empty() && text.find_first_not_of(kPlain) == text.npos ? text : fmt::format("'{}'", text);
}

Strings split_commas(const std::string& text) {
  Strings parts(1);
  for (char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// A ValueType from two functions on values of type T.
template <typename T, T (*kParse)(Words), std::string (*kText)(const T&)>
ValueType value_type(std::string metavar, ValueType::Words words = ValueType::Words::kOne) {
  return {.words = words,
          .metavar = std::move(metavar),
          .parse = [](Words given, void* value) { *static_cast<T*>(value) = kParse(given); },
          .text = [](const void* value) { return kText(*static_cast<const T*>(value)); }};
}

bool bool_of(Words words) { return words[0] == "True"; }
std::string bool_text(const bool& value) { return value ? "True" : "False"; }
int64_t int_of(Words words) { return parse_int(words[0]); }
std::string int_text(const int64_t& value) { return std::to_string(value); }
double float_of(Words words) { return parse_float(words[0]); }
std::string float_text(const double& value) { return float_repr(value); }
FloatOrInt number_of(Words words) { return {parse_float(words[0])}; }
std::string number_text(const FloatOrInt& value) { return float_repr(value.value); }
FloatPair pair_of(Words words) { return {parse_float(words[0]), parse_float(words[1])}; }
std::string pair_text(const FloatPair& value) { return float_repr(value[0]) + " " + float_repr(value[1]); }
std::string string_of(Words words) { return words[0]; }
std::string string_text(const std::string& value) { return shell_text(value); }
Strings strings_of(Words words) { return split_commas(words[0]); }
std::string strings_text(const Strings& value) {
  return shell_text(fmt::format("{}", fmt::join(value, ",")));
}
OverrideImports imports_of(Words words) { return parse_override_imports(words); }
std::string imports_text(const OverrideImports& value) { return override_imports_text(value); }

// The word None, else as T; an error names both.
template <typename T, T (*kParse)(Words)>
std::optional<T> optional_of(Words words) {
  if (words[0] == "None") return std::nullopt;
  try {
    return kParse(words);
  } catch (const ValueError& error) {
    throw ValueError(
        fmt::format("no type matching {} could be instantiated from [{}]: it is not None, and {}",
                    Value<std::optional<T>>::type().metavar, string_repr(words[0]), error.what()));
  }
}
template <typename T, std::string (*kText)(const T&)>
std::string optional_text(const std::optional<T>& value) {
  return value ? kText(*value) : "None";
}
template <typename T, T (*kParse)(Words), std::string (*kText)(const T&)>
ValueType optional_type(const char* metavar) {
  return value_type<std::optional<T>, optional_of<T, kParse>, optional_text<T, kText>>(metavar);
}

ModelParts parts_of(Words words) {
  if (words.size() == 1 && words[0] == "None") return std::nullopt;
  std::vector<Strings> parts;
  for (const std::string& word : words) parts.push_back(split_commas(word));
  return parts;
}
std::string parts_text(const ModelParts& value) {
  if (!value) return "None";
  std::vector<std::string> parts;
  for (const Strings& part : *value) parts.push_back(strings_text(part));
  return fmt::format("{}", fmt::join(parts, " "));
}

InCodeOnly in_code_of(Words) { return {}; }
std::string in_code_text(const InCodeOnly&) { return "None"; }
EmptyDict dict_of(Words) { return {}; }
std::string dict_text(const EmptyDict&) { return "{}"; }

}  // namespace

std::string choice_metavar(std::span<const std::string_view> names) {
  return fmt::format("{{{}}}", fmt::join(names, ","));
}

std::string choice_words(std::span<const std::string_view> names) {
  return fmt::format("one of '{}'", fmt::join(names, "', '"));
}

const ValueType& Value<bool>::type() {
  static const ValueType kType = value_type<bool, bool_of, bool_text>("", ValueType::Words::kNone);
  return kType;
}
Json Value<bool>::to_json(const bool& value) { return value; }
bool Value<bool>::from_json(const Json& json) {
  if (!json.is_boolean()) throw WrongType{"true or false"};
  return json.get<bool>();
}

const ValueType& Value<int64_t>::type() {
  static const ValueType kType = value_type<int64_t, int_of, int_text>("INT");
  return kType;
}
Json Value<int64_t>::to_json(const int64_t& value) { return value; }
int64_t Value<int64_t>::from_json(const Json& json) {
  const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  if (!json.is_number_integer() || !fits) throw WrongType{"an integer of at most 64 bits"};
  return json.get<int64_t>();
}

const ValueType& Value<double>::type() {
  static const ValueType kType = value_type<double, float_of, float_text>("FLOAT");
  return kType;
}
Json Value<double>::to_json(const double& value) {
  return std::isfinite(value) ? Json(value) : Json(float_repr(value));  // JSON has no infinity
}
double Value<double>::from_json(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "inf" || json == "-inf" || json == "nan") return parse_float(json.get<std::string>());
  throw WrongType{"a number"};
}

const ValueType& Value<FloatOrInt>::type() {
  static const ValueType kType = value_type<FloatOrInt, number_of, number_text>("FLOAT|INT");
  return kType;
}
Json Value<FloatOrInt>::to_json(const FloatOrInt& value) { return Value<double>::to_json(value.value); }
FloatOrInt Value<FloatOrInt>::from_json(const Json& json) { return {Value<double>::from_json(json)}; }

const ValueType& Value<FloatPair>::type() {
  static const ValueType kType =
      value_type<FloatPair, pair_of, pair_text>("FLOAT FLOAT", ValueType::Words::kTwo);
  return kType;
}
Json Value<FloatPair>::to_json(const FloatPair& value) {
  return Json::array({Value<double>::to_json(value[0]), Value<double>::to_json(value[1])});
}
FloatPair Value<FloatPair>::from_json(const Json& json) {
  if (!json.is_array() || json.size() != 2) throw WrongType{"a list of two numbers"};
  return {Value<double>::from_json(json[0]), Value<double>::from_json(json[1])};
}

const ValueType& Value<std::string>::type() {
  static const ValueType kType = value_type<std::string, string_of, string_text>("STR");
  return kType;
}
Json Value<std::string>::to_json(const std::string& value) { return value; }
std::string Value<std::string>::from_json(const Json& json) {
  if (!json.is_string()) throw WrongType{"a text"};
  return json.get<std::string>();
}

const ValueType& Value<Strings>::type() {
  static const ValueType kType = value_type<Strings, strings_of, strings_text>("A,B,C,...");
  return kType;
}
Json Value<Strings>::to_json(const Strings& value) { return value; }
Strings Value<Strings>::from_json(const Json& json) {
  if (!json.is_array()) throw WrongType{"a list of texts"};
  Strings strings;
  for (const Json& item : json) {
    if (!item.is_string()) throw WrongType{"a list of texts"};
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

const ValueType& Value<std::optional<int64_t>>::type() {
  static const ValueType kType = optional_type<int64_t, int_of, int_text>("{None}|INT");
  return kType;
}
const ValueType& Value<std::optional<double>>::type() {
  static const ValueType kType = optional_type<double, float_of, float_text>("{None}|FLOAT");
  return kType;
}
const ValueType& Value<std::optional<std::string>>::type() {
  static const ValueType kType = optional_type<std::string, string_of, string_text>("{None}|STR");
  return kType;
}

#define MILEPOST_CONFIG_OPTIONAL_JSON_(T)                                 \
  Json Value<std::optional<T>>::to_json(const std::optional<T>& value) {  \
    return value ? Value<T>::to_json(*value) : Json();                    \
  }                                                                       \
  std::optional<T> Value<std::optional<T>>::from_json(const Json& json) { \
    if (json.is_null()) return std::nullopt;                              \
    try {                                                                 \
      return Value<T>::from_json(json);                                   \
    } catch (WrongType & error) {                                         \
      throw WrongType{error.wanted + ", or null"};                        \
    }                                                                     \
  }
MILEPOST_CONFIG_OPTIONAL_JSON_(int64_t)
MILEPOST_CONFIG_OPTIONAL_JSON_(double)
MILEPOST_CONFIG_OPTIONAL_JSON_(std::string)
#undef MILEPOST_CONFIG_OPTIONAL_JSON_

const ValueType& Value<ModelParts>::type() {
  static const ValueType kType = value_type<ModelParts, parts_of, parts_text>(
      "{None}|{[A,B,C,... [A,B,C,... ...]]}", ValueType::Words::kAny);
  return kType;
}
Json Value<ModelParts>::to_json(const ModelParts& value) { return value ? Json(*value) : Json(); }
ModelParts Value<ModelParts>::from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  if (!json.is_array()) throw WrongType{"a list of lists of texts, or null"};
  std::vector<Strings> parts;
  for (const Json& part : json) parts.push_back(Value<Strings>::from_json(part));
  return parts;
}

const ValueType& Value<OverrideImports>::type() {
  static const ValueType kType = value_type<OverrideImports, imports_of, imports_text>(
      "TARGET[='{\"k\": v}'] ...", ValueType::Words::kAny);
  return kType;
}
Json Value<OverrideImports>::to_json(const OverrideImports& value) {
  Json list = Json::array();
  for (const OverrideImport& import : value) {
    if (import.kwargs_json.empty()) {
      list.push_back(import.target);
    } else {
      list.push_back(Json::array({import.target, Json::parse(import.kwargs_json)}));
    }
  }
  return list;
}
OverrideImports Value<OverrideImports>::from_json(const Json& json) {
  const WrongType wrong{"a list of targets, each a text or [text, {arguments}]"};
  if (!json.is_array()) throw wrong;
  OverrideImports imports;
  for (const Json& item : json) {
    if (item.is_string()) {
      imports.push_back({item.get<std::string>(), ""});
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_object()) {
      imports.push_back({item[0].get<std::string>(), item[1].dump()});
    } else {
      throw wrong;
    }
  }
  return imports;
}

const ValueType& Value<InCodeOnly>::type() {
  static const ValueType kType = value_type<InCodeOnly, in_code_of, in_code_text>("{None}");
  return kType;
}
Json Value<InCodeOnly>::to_json(const InCodeOnly&) { return {}; }
InCodeOnly Value<InCodeOnly>::from_json(const Json& json) {
  if (!json.is_null()) throw WrongType{"null: it can be set in code only"};
  return {};
}

const ValueType& Value<EmptyDict>::type() {
  static const ValueType kType = value_type<EmptyDict, dict_of, dict_text>("{}");
  return kType;
}
Json Value<EmptyDict>::to_json(const EmptyDict&) { return Json::object(); }
EmptyDict Value<EmptyDict>::from_json(const Json& json) {
  if (!json.is_object() || !json.empty()) throw WrongType{"{}: it can be filled in code only"};
  return {};
}

}  // namespace milepost::config
