#include "engine/block_order.h"

#include <algorithm>

namespace milepost {

BlockOrder::BlockOrder(const std::vector<int64_t>& blocks_of_files, int at_once) {
  const auto count = static_cast<int32_t>(blocks_of_files.size());
  for (int32_t begin = 0; begin < count; begin += at_once) {
    const int32_t end = std::min(count, begin + at_once);
    for (int64_t block = 0;;) {
      Run run{size_, block, static_cast<int32_t>(files_.size()), 0};
      int64_t until = 0;
      for (int32_t file = begin; file < end; ++file) {
        const int64_t blocks = blocks_of_files[static_cast<size_t>(file)];
        if (blocks <= block) continue;
        files_.push_back(file);
        until = run.num_files++ == 0 ? blocks : std::min(until, blocks);
      }
      if (run.num_files == 0) break;
      runs_.push_back(run);
      size_ += (until - block) * run.num_files;
      block = until;
    }
  }
}

BlockOrder::Place BlockOrder::at(int64_t position) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), position,
                       [](int64_t value, const Run& run) { return value < run.first_position; });
  const Run& run = *(after - 1);
  const int64_t inside = position - run.first_position;
  return {files_[static_cast<size_t>(run.first_file + inside % run.num_files)],
          run.first_block + inside / run.num_files};
}

}  // namespace milepost
