#include "train/run/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace milepost::train {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// One value a column; a column without a value is NaN.
std::vector<double> column_means(std::span<const double> values, int columns) {
  const size_t width = std::min(values.size(), static_cast<size_t>(columns));
  std::vector<double> means;
  for (size_t column = 0; column < width; ++column) {
    const size_t begin = column * values.size() / width, end = (column + 1) * values.size() / width;
    double sum = 0;
    int count = 0;
    for (const double value : values.subspan(begin, end - begin)) {
      if (!std::isfinite(value)) continue;
      sum += value;
      ++count;
    }
    means.push_back(count > 0 ? sum / count : kNothing);
  }
  return means;
}

// How full the cell of `row` (0 at the bottom) is, in eighths.
int eighths(double height, int row) {
  return static_cast<int>(std::clamp(std::nearbyint((height - row) * 8), 0.0, 8.0));
}

std::string cell(int filled, bool unicode) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (!unicode) return filled >= 4 ? "#" : filled > 0 ? "." : " ";
  return kBlocks[filled];
}

}  // namespace

std::vector<std::string> plot(std::span<const double> values, int64_t first_step, const PlotSize& size) {
  const std::vector<double> means = column_means(values, size.columns);
  std::vector<double> finite;
  std::copy_if(means.begin(), means.end(), std::back_inserter(finite),
               [](double v) { return std::isfinite(v); });
  if (finite.size() < 2) return {};
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
  const double low = *least, range = std::max(*most - low, 1e-12);

  std::vector<std::string> lines;
  for (int row = size.rows - 1; row >= 0; --row) {
    std::string line = row == size.rows - 1 ? fmt::format("{:9.4f} ", *most)
                       : row == 0           ? fmt::format("{:9.4f} ", low)
                                            : std::string(10, ' ');
    line += size.unicode ? "│" : "|";
    for (const double mean : means) {
      // The lowest value still shows: an eighth of a row.
      const double height = 0.125 + (mean - low) / range * (size.rows - 0.125);
      line += cell(std::isfinite(mean) ? eighths(height, row) : 0, size.unicode);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  }
  const std::string first = fmt::format("{}", first_step);
  const std::string last = fmt::format("{}", first_step + static_cast<int64_t>(values.size()) - 1);
  const size_t width = std::max(means.size(), first.size() + last.size() + 1);
  lines.push_back(std::string(11, ' ') + first + std::string(width - first.size() - last.size(), ' ') + last);
  return lines;
}

}  // namespace milepost::train
