#include "config/python_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "milepost/base/error.h"

namespace milepost::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Without underscores; nullopt where one does not stand between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return std::nullopt;
  }
  return plain;
}

// The sign goes, since from_chars knows no '+'.
bool take_sign(std::string_view* text) {
  const bool negative = text->starts_with('-');
  if (negative || text->starts_with('+')) text->remove_prefix(1);
  return negative;
}

}  // namespace

int64_t parse_int(std::string_view text) {
  const auto refuse = [&]() -> int64_t {
    throw ValueError(fmt::format("invalid literal for int() with base 10: {}", string_repr(text)));
  };
  const std::optional<std::string> plain = without_underscores(trim(text));
  if (!plain) return refuse();
  std::string_view digits = *plain;
  const bool negative = take_sign(&digits);
  if (digits.empty()) return refuse();
  for (char c : digits) {
    if (!is_digit(c)) return refuse();
  }
  const std::string number = (negative ? "-" : "") + std::string(digits);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc()) {
    throw ValueError(fmt::format("{} is beyond 64 bits", printable(text, 60)));
  }
  return value;
}

double parse_float(std::string_view text) {
  const auto refuse = [&]() -> double {
    throw ValueError(fmt::format("could not convert string to float: {}", string_repr(text)));
  };
  const std::optional<std::string> plain = without_underscores(trim(text));
  if (!plain) return refuse();
  std::string_view number = *plain;
  const bool negative = take_sign(&number);
  // from_chars would take a second sign and "nan(1)".
  if (number.empty() || number[0] == '-' || number.find('(') != number.npos) return refuse();
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end != number.data() + number.size() || error == std::errc::invalid_argument) return refuse();
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(number).c_str(), nullptr);
  return negative ? -value : value;
}

std::string float_repr(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string repr(1, quote);
  for (char c : text.substr(0, 200)) {
    if (c == '\n') {
      repr += "\\n";
    } else if (c == '\t') {
      repr += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      repr += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (c == quote || c == '\\') repr += '\\';
      repr += c;
    }
  }
  return repr + quote;
}

}  // namespace milepost::config
