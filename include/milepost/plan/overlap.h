// Which stored chunks a wanted box needs. Pure functions (spec dcp-format, section 6).
#pragma once

#include <cstdint>
#include <vector>

#include "milepost/catalog/catalog.h"
#include "milepost/tensor/box.h"

namespace milepost {

// Finds a tensor's chunks by range lookup rather than by trying all: sorted once along the dimension with the
// most distinct starts.
//
// The catalog must outlive it and not change. Threads: const members from any thread.
// Chunks that leave the tensor (see check_coverage) are never found.
// Memory: 16 bytes a chunk, nothing for tensors of up to 16 chunks. Cost: n log n to make; to find, log n and
// the chunks that the box meets along that dimension, when chunks are of similar extent there.
class ChunkFinder {
 public:
  // `tensor`: index in the catalog.
  ChunkFinder(const Catalog& catalog, int64_t tensor);

  struct Hit {
    int64_t chunk;  // catalog index
    Box box;        // the common part, in the tensor's coordinates; never empty
  };
  // Replaces `*hits` by all chunks that share an element with `box`, in order of chunk index. The one chunk
  // of a 0-d tensor meets any 0-d box. Requires as many dimensions as the tensor has.
  void find(const Box& box, std::vector<Hit>* hits) const;

 private:
  void try_chunk(int64_t chunk, const Box& box, std::vector<Hit>* hits) const;

  const Catalog* catalog_;
  int64_t tensor_;
  int dim_ = -1;                 // -1: few chunks, or nothing tells them apart: try all
  std::vector<int64_t> starts_;  // sorted starts along dim_
  std::vector<int64_t> order_;   // chunk indexes by start
  int64_t longest_ = 0;          // largest extent along dim_
};

}  // namespace milepost
