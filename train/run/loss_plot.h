// A small picture of the loss, for the end of a run. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace milepost::train {

struct PlotSize {
  int columns = 60, rows = 8;  // of the drawn area
  bool unicode = true;         // else ASCII
};

// Lines of a plot of `values` over their index, from `first_step`; each column shows the mean of the values
// that fall on it. Values that are not finite are left out. Empty where fewer than two are left.
std::vector<std::string> plot(std::span<const double> values, int64_t first_step, const PlotSize& size = {});

}  // namespace milepost::train
