// The types of configuration values that C++ has no word for. All are plain values; any thread may use them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace milepost::config {

using Strings = std::vector<std::string>;

// One of a fixed list of names: `Choice<kDtypes> dtype = "float32"`, `if (dtype == "bfloat16")`. A literal
// that is not in the list does not compile; a text from outside goes through `parse`. Default: the first
// name.
template <const auto& kNames>
class Choice {
 public:
  constexpr Choice() = default;
  consteval Choice(
      const char* name)  // NOLINT(google-explicit-constructor): so that a literal can be compared
      : index_(index_of(name)) {
    if (index_ == std::size(kNames)) throw "not one of the choices";
  }

  // nullopt when `name` is none of the names; they are case sensitive.
  static std::optional<Choice> parse(std::string_view name) {
    Choice choice;
    choice.index_ = index_of(name);
    if (choice.index_ == std::size(kNames)) return std::nullopt;
    return choice;
  }
  static constexpr std::span<const std::string_view> names() { return kNames; }
  constexpr std::string_view text() const { return kNames[index_]; }

  friend constexpr bool operator==(Choice, Choice) = default;

 private:
  static constexpr size_t index_of(std::string_view name) {
    size_t i = 0;
    while (i < std::size(kNames) && kNames[i] != name) ++i;
    return i;
  }
  size_t index_ = 0;
};

// TorchTitan's `float | int`; a float here, since the two mean the same.
struct FloatOrInt {
  double value = 0;
  friend bool operator==(const FloatOrInt&, const FloatOrInt&) = default;
};

// A pair of numbers that is given as two words.
using FloatPair = std::array<double, 2>;

// Modules of each pipeline part; nullopt: derived from the model and the schedule.
using ModelParts = std::optional<std::vector<Strings>>;

// A callable or an object that TorchTitan sets in code: always None here, and not on the command line.
struct InCodeOnly {
  friend bool operator==(const InCodeOnly&, const InCodeOnly&) = default;
};

// A dictionary that TorchTitan fills in code: always empty here, and not on the command line.
struct EmptyDict {
  friend bool operator==(const EmptyDict&, const EmptyDict&) = default;
};

// One target of `override.imports`, `module.function`, with the keyword arguments given to it.
struct OverrideImport {
  std::string target;
  std::string kwargs_json;  // a JSON object; empty: none given
  friend bool operator==(const OverrideImport&, const OverrideImport&) = default;
};
using OverrideImports = std::vector<OverrideImport>;

}  // namespace milepost::config
