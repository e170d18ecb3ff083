// ChunkLookup: a tensor's chunk by its offsets.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "milepost/catalog/catalog.h"

namespace milepost::dcp {

// Looks at `catalog`, which must outlive it. Chunks that lie in the order of their offsets need no memory.
class ChunkLookup {
 public:
  explicit ChunkLookup(const Catalog& catalog) : catalog_(catalog) {}

  // Sorts the chunks of a tensor whose chunks are not in ascending order of offsets; false when two have the
  // same. Must be called for such tensors once all their chunks are there. Cost: n log n, 4 bytes a chunk.
  [[nodiscard]] bool sort(int64_t tensor);

  // The chunk at `offsets`, or -1. `hint`: its likely position among the tensor's chunks; any number.
  // Requires as many offsets as the tensor has dimensions. Cost: constant when the hint is right, else log n.
  int64_t find(int64_t tensor, DimsView offsets, int64_t hint) const;

 private:
  const Catalog& catalog_;
  std::unordered_map<int64_t, std::vector<uint32_t>> sorted_;  // tensor -> positions of its chunks
};

}  // namespace milepost::dcp
