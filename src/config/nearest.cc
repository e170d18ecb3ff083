#include "config/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace milepost::config {
namespace {

// Longer names are no option of ours, and comparing them costs the product of the lengths.
constexpr size_t kLongestName = 200;

size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

double likeness(std::string_view a, std::string_view b) {
  const size_t longer = std::max(a.size(), b.size());
  if (longer == 0) return 1;
  if (longer > kLongestName) return 0;
  return 1 - static_cast<double>(edits(a, b)) / static_cast<double>(longer);
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  double best_likeness = 0.5;
  for (const std::string& candidate : candidates) {
    const double alike = likeness(name, candidate);
    if (alike < best_likeness) continue;
    best_likeness = alike;
    best = candidate;
  }
  return best;
}

}  // namespace milepost::config
