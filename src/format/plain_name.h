// Names that a file may give for its neighbours.
#pragma once

#include <string_view>

namespace milepost {

// Whether `name` can only mean an entry of the folder itself, whatever the system: no separator of any kind,
// no NUL, not "", "." or "..".
inline bool is_plain_name(std::string_view name) {
  using namespace std::string_view_literals;
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\\0"sv) == std::string_view::npos;
}

}  // namespace milepost
