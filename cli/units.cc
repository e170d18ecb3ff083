#include "units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace milepost::cli {
namespace {

struct Unit {
  std::string_view name;  // upper case, without the B
  int64_t bytes;
};
constexpr std::array<Unit, 9> kUnits = {{{"", 1},
                                         {"K", 1'000},
                                         {"M", 1'000'000},
                                         {"G", 1'000'000'000},
                                         {"T", 1'000'000'000'000},
                                         {"KI", int64_t{1} << 10},
                                         {"MI", int64_t{1} << 20},
                                         {"GI", int64_t{1} << 30},
                                         {"TI", int64_t{1} << 40}}};

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

}  // namespace

std::optional<int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc() || !std::isfinite(number) || number < 0 || std::signbit(number))
    return std::nullopt;
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  std::string name = upper(rest);
  if (name.ends_with('B')) name.pop_back();
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    int64_t whole = 0;  // exact where the number has no fraction
    const auto [whole_end, whole_code] = std::from_chars(text.data(), end, whole);
    if (whole_code == std::errc() && whole_end == end) {
      int64_t product = 0;
      return __builtin_mul_overflow(whole, unit.bytes, &product) ? std::nullopt : std::optional(product);
    }
    const double bytes = std::floor(number * static_cast<double>(unit.bytes));
    return bytes < 9.2e18 ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}

std::string bytes_flag_text(int64_t num_bytes) {
  constexpr std::array<std::string_view, 9> kNames = {"", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"};
  size_t best = 0;
  for (size_t i = 1; i < kUnits.size(); ++i) {
    if (num_bytes > 0 && num_bytes % kUnits[i].bytes == 0 && kUnits[i].bytes > kUnits[best].bytes) best = i;
  }
  return fmt::format("{}{}", num_bytes / kUnits[best].bytes, kNames[best]);
}

std::string bytes_text(int64_t num_bytes) {
  if (num_bytes < 1000) return fmt::format("{} {}", num_bytes, num_bytes == 1 ? "byte" : "bytes");
  auto number = static_cast<double>(num_bytes);
  std::string_view unit;
  for (std::string_view next : {"kB", "MB", "GB", "TB", "PB"}) {
    if (number < 999.95 && !unit.empty()) break;
    number /= 1000;
    unit = next;
  }
  return number < 9.995 ? fmt::format("{:.2f} {}", number, unit) : fmt::format("{:.1f} {}", number, unit);
}

std::string count_text(int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > (count < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<size_t>(i), ",");
  }
  return digits;
}

std::string count_text(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count_text(count), noun, count == 1 ? "" : "s");
}

std::string seconds_text(double seconds) {
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace milepost::cli
