#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"

namespace milepost {

std::vector<std::vector<int32_t>> split_over_files(const std::vector<int64_t>& bytes,
                                                   const std::vector<bool>& is_object, int num_files) {
  if (num_files < 1) throw ValueError(fmt::format("{} files a rank: at least one is needed", num_files));
  std::vector<std::vector<int32_t>> files(static_cast<size_t>(num_files));
  std::vector<int32_t> tensors;
  size_t objects = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (is_object[i]) {
      files[objects++ % files.size()].push_back(static_cast<int32_t>(i));
    } else {
      tensors.push_back(static_cast<int32_t>(i));
    }
  }
  const auto size = [&](int32_t i) { return bytes[static_cast<size_t>(i)]; };
  if (num_files > 1) {
    std::stable_sort(tensors.begin(), tensors.end(), [&](int32_t a, int32_t b) { return size(a) > size(b); });
  }
  using Fill = std::pair<int64_t, size_t>;  // bytes so far, file
  std::priority_queue<Fill, std::vector<Fill>, std::greater<>> emptiest;
  for (size_t f = 0; f < files.size(); ++f) emptiest.push({0, f});
  for (int32_t i : tensors) {
    const auto [sum, file] = emptiest.top();
    emptiest.pop();
    files[file].push_back(i);
    emptiest.push({sum + size(i), file});
  }
  return files;
}

}  // namespace milepost
