// Planning a save: which rank writes which chunk or object. Pure functions on plain data; who carries plans between ranks is the caller's affair (spec dcp-format, section 4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/catalog/catalog.h"
#include "milepost/tensor/box.h"

namespace milepost {

// A rank's proposal: names interned per rank, boxes packed, so that 3 million items stay small.
class LocalPlan {
 public:
  struct Item {
    int32_t name = 0;         // index into names()
    int32_t ndim = -1;        // -1: an object
    int64_t first_dim = 0;    // into dims(): global shape, offsets, sizes (ndim each)
    DType dtype = DType::kFloat32;
  };
  // Throws ValueError (key) when a name is proposed twice with the same offsets.
  void add_tensor(std::string_view name, DType dtype, DimsView shape, const Box& box);
  void add_object(std::string_view name);

  const std::vector<Item>& items() const { return items_; }
  const std::vector<std::string>& names() const { return names_; }
  DimsView shape(const Item& item) const { return dims(item, 0); }
  DimsView offsets(const Item& item) const { return dims(item, 1); }
  DimsView sizes(const Item& item) const { return dims(item, 2); }

 private:
  DimsView dims(const Item& item, int which) const {
    return {dims_.data() + item.first_dim + int64_t{which} * item.ndim, static_cast<size_t>(item.ndim)};
  }
  std::vector<Item> items_;
  std::vector<std::string> names_;
  std::vector<int64_t> dims_;
};

struct GlobalPlan {
  // For each rank the indexes of its items that it writes, in plan order.
  std::vector<std::vector<int32_t>> writes;
  // Tensors and objects in order of first appearance (rank 0's plan, then rank 1's ...), chunks in order of rank and item, without locations.
  Catalog catalog;
  // For each rank and each written item: the catalog's chunk index, or -1 - object index.
  std::vector<std::vector<int64_t>> targets;
};

// Drops duplicates (same name and offsets) so that each is written once, by the proposing rank with the least load so far (ties: lowest rank), load counted as torch does; empty chunks of a tensor that has others are
// dropped; then validates. Throws ValueError with the keys: same name with different shape, dtype or kind, and what validate() finds. Cost: n log n.
GlobalPlan plan_global(const std::vector<LocalPlan>& ranks);

// A fault of a tensor's chunks.
struct CoverageFault {
  enum class Kind { kOutOfBounds, kOverlap, kHole } kind;
  int64_t tensor;          // index in the catalog
  int64_t chunk_a = -1, chunk_b = -1;  // for overlaps both, for out of bounds one
  std::string text;        // for people, boxes included
};
// All faults of all tensors, in order (at most `max_faults`). Every element must be covered exactly once. n log n in the number of chunks of a tensor whatever dimension is cut.
std::vector<CoverageFault> check_coverage(const Catalog& catalog, int64_t max_faults = 1000);

// Splits written items over `num_files` files of a rank: objects round-robin, then tensors by size descending into the emptiest (ties: lowest), as torch's thread_count does; num_files = 1 keeps plan order
// with objects first. Returns item positions (into `bytes`) per file.
std::vector<std::vector<int32_t>> split_over_files(const std::vector<int64_t>& bytes, const std::vector<bool>& is_object, int num_files);

}  // namespace milepost
