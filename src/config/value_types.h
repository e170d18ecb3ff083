// How each type of value is read from words of a command line, shown, and written in JSON and read back. Only
// types that occur in the configuration.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/option.h"

namespace milepost::config {

using Json = nlohmann::ordered_json;

// A value in a file has another type than its field: "an integer". Thrown by `from_json` and given its place
// by the reader.
struct WrongType {
  std::string wanted;
};

template <typename T>
struct Value;  // { static const ValueType& type(); static Json to_json(const T&); static T from_json(const
               // Json&); }

template <typename T>
concept Leaf = requires { Value<T>::type(); };

#define MILEPOST_CONFIG_VALUE_(T)         \
  template <>                             \
  struct Value<T> {                       \
    static const ValueType& type();       \
    static Json to_json(const T& value);  \
    static T from_json(const Json& json); \
  };

MILEPOST_CONFIG_VALUE_(bool)
MILEPOST_CONFIG_VALUE_(int64_t)
MILEPOST_CONFIG_VALUE_(double)
MILEPOST_CONFIG_VALUE_(FloatOrInt)
MILEPOST_CONFIG_VALUE_(FloatPair)
MILEPOST_CONFIG_VALUE_(std::string)
MILEPOST_CONFIG_VALUE_(Strings)
MILEPOST_CONFIG_VALUE_(std::optional<int64_t>)
MILEPOST_CONFIG_VALUE_(std::optional<double>)
MILEPOST_CONFIG_VALUE_(std::optional<std::string>)
MILEPOST_CONFIG_VALUE_(ModelParts)
MILEPOST_CONFIG_VALUE_(OverrideImports)
MILEPOST_CONFIG_VALUE_(InCodeOnly)
MILEPOST_CONFIG_VALUE_(EmptyDict)
#undef MILEPOST_CONFIG_VALUE_

// "{a,b}" and "one of 'a', 'b'".
std::string choice_metavar(std::span<const std::string_view> names);
std::string choice_words(std::span<const std::string_view> names);

template <const auto& kNames>
struct Value<Choice<kNames>> {
  static const ValueType& type() {
    static const ValueType kType{
        .metavar = choice_metavar(kNames), .choices = kNames, .parse = &parse, .text = &text};
    return kType;
  }
  static Json to_json(Choice<kNames> value) { return std::string(value.text()); }
  static Choice<kNames> from_json(const Json& json) {
    const auto choice =
        json.is_string() ? Choice<kNames>::parse(json.get_ref<const std::string&>()) : std::nullopt;
    if (!choice) throw WrongType{choice_words(kNames)};
    return *choice;
  }

 private:
  // The command line checks choices while it collects words, so this one is among them.
  static void parse(std::span<const std::string> words, void* value) {
    *static_cast<Choice<kNames>*>(value) = *Choice<kNames>::parse(words[0]);
  }
  static std::string text(const void* value) {
    return std::string(static_cast<const Choice<kNames>*>(value)->text());
  }
};

// TorchTitan lower-cases this one, which its command line never sees otherwise.
template <>
inline Choice<kAsyncModes> Value<Choice<kAsyncModes>>::from_json(const Json& json) {
  std::string text = json.is_string() ? json.get<std::string>() : "";
  for (char& c : text) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto choice = Choice<kAsyncModes>::parse(text);
  if (!choice) throw WrongType{choice_words(kAsyncModes)};
  return *choice;
}

}  // namespace milepost::config
