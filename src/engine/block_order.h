// BlockOrder: in which order the blocks of several files are written.
#pragma once

#include <cstdint>
#include <vector>

namespace milepost {

// Files are taken in groups of `at_once`; within a group the files' blocks come in turn (block 0 of each,
// block 1 of each, ...), files that have ended left out. The blocks of one file are always in order. Memory:
// 24 bytes a file.
class BlockOrder {
 public:
  BlockOrder(const std::vector<int64_t>& blocks_of_files, int at_once);

  int64_t size() const { return size_; }
  struct Place {
    int64_t file, block;
  };
  Place at(int64_t position) const;  // O(log files)

 private:
  // A run of positions during which the same files take turns.
  struct Run {
    int64_t first_position, first_block;
    int32_t first_file, num_files;  // into files_
  };
  std::vector<Run> runs_;
  std::vector<int32_t> files_;
  int64_t size_ = 0;
};

}  // namespace milepost
