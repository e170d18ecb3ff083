#include "adapt/key_names.h"

#include <fmt/format.h>

#include <charconv>

#include "milepost/base/error.h"

namespace milepost::adapt {

std::string listed(const std::vector<std::string>& names, size_t most) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < most; ++i) out += (i == 0 ? "" : ", ") + printable(names[i]);
  if (names.size() > most) out += fmt::format(" and {} more", names.size() - most);
  return out;
}

std::optional<int64_t> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, number);
  if (error != std::errc() || stop == end || *stop != '.' || number < 0) return std::nullopt;
  return number;
}

}  // namespace milepost::adapt
