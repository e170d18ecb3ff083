// Names that someone may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace milepost::config {

// How alike two names are, from 0 to 1: the share of characters that need no edit.
double likeness(std::string_view a, std::string_view b);

// The candidate most like `name`; empty when none is at least half alike.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace milepost::config
