// JSON for machines: one document on standard output. Keys keep their order.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "milepost/base/error.h"

namespace milepost::cli {

using Json = nlohmann::ordered_json;

// Indented text with a final newline. Bytes that are not UTF-8 (file names may hold any) become U+FFFD.
std::string json_text(const Json& document);

// A number, or a string ("nan", "inf", "-inf") where JSON has none.
Json json_number(double value);

// {"code", "message", "path"?, "key"?, "offset"?}
Json json_error(const Error& error);

}  // namespace milepost::cli
