// The value of an object entry as an indented tree, for people; machines get pickle::to_json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "milepost/format/pickle.h"

namespace milepost::cli {

struct ValueTreeLimits {
  int64_t max_lines = 2000;
  int max_depth = 100;
  int64_t max_items_inline = 16;  // of a list or tuple of plain values; longer ones are cut
};

// Lines, each ending in a newline, the first starting with "name: ". Strings are quoted, control characters
// escaped. Bytes that hold a whole pickle are shown as its value; what that pickle may name is limited as
// everywhere (unknown globals are shown as refused). Shared and cyclic values end at the limits, which are
// then said.
std::string value_tree(std::string_view name, const pickle::Value& value, const ValueTreeLimits& limits = {});

}  // namespace milepost::cli
