// TOML as a JSON document.
#pragma once

#include <string_view>

#include "config/value_types.h"

namespace milepost::config {

// Throws FormatError with line and column for what is not TOML, and for dates and times, which no field has.
Json parse_toml(std::string_view text);

}  // namespace milepost::config
