// Which stored chunks a wanted box needs. Pure functions (spec dcp-format, section 6).
#pragma once

#include <cstdint>
#include <vector>

#include "milepost/catalog/catalog.h"
#include "milepost/tensor/box.h"

namespace milepost {

// Finds chunks by range lookup rather than by trying all: sorted once a tensor along the dimension that separates most.
// Threads: const members from any thread. The catalog must outlive it. Memory: 16 bytes a chunk of tensors with more than 16 chunks, made on first use per tensor.
class ChunkFinder {
 public:
  ChunkFinder(const Catalog& catalog, int64_t tensor);
  struct Hit {
    int64_t chunk;
    Box box;  // the common part, in the tensor's coordinates
  };
  // All chunks that meet `box`, in order of chunk index.
  void find(const Box& box, std::vector<Hit>* hits) const;

 private:
  const Catalog* catalog_;
  int64_t tensor_;
  int dim_ = -1;                       // -1: few chunks, try all
  std::vector<int64_t> starts_;        // sorted starts along dim_
  std::vector<int64_t> order_;         // chunk indexes by start
  int64_t longest_ = 0;                // largest extent along dim_
};

}  // namespace milepost
