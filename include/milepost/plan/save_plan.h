// Planning a save: which rank writes which chunk or object. Pure functions on plain data; who carries plans
// between ranks is the caller's affair (spec dcp-format, section 4).
//
//   LocalPlan plan;                                  // each rank proposes what it holds
//   plan.add_tensor("w", DType::kBFloat16, shape, my_box);
//   GlobalPlan all = plan_global(plans);             // one place decides
//   all.writes[rank]                                 // what each rank is to write, all.catalog: what comes
//   of it
//
// Threads: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/catalog/catalog.h"
#include "milepost/plan/index_table.h"
#include "milepost/tensor/box.h"

namespace milepost {

// Distinct names, end to end in one block: a thousand ranks with a thousand names each must stay small.
class NameList {
 public:
  size_t size() const { return ends_.size(); }
  // Valid until the next intern() and as long as the list.
  std::string_view operator[](int32_t index) const {
    const auto i = static_cast<size_t>(index);
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  // The index of `name`, which is added when it is new; the first is 0.
  int32_t intern(std::string_view name);

 private:
  std::string text_;
  std::vector<size_t> ends_;
  IndexTable table_;
};

// A rank's proposal: names interned per rank, boxes packed, so that 3 million items stay small (about 24
// bytes and 24 a dimension each, and the names).
class LocalPlan {
 public:
  struct Item {
    int32_t name = 0;       // index into names()
    int32_t ndim = -1;      // -1: an object
    int64_t first_dim = 0;  // where global shape, offsets and sizes start (ndim numbers each)
    DType dtype = DType::kFloat32;
  };
  // Throws ValueError (key): `box` has another number of dimensions than `shape`; the name is proposed twice
  // with the same offsets, or as an object too. Whether boxes lie inside their tensors is plan_global's to
  // say.
  void add_tensor(std::string_view name, DType dtype, DimsView shape, const Box& box);
  void add_object(std::string_view name);

  const std::vector<Item>& items() const { return items_; }  // in the order in which they were added
  const NameList& names() const { return names_; }
  DimsView shape(const Item& item) const { return dims(item, 0); }
  DimsView offsets(const Item& item) const { return dims(item, 1); }
  DimsView sizes(const Item& item) const { return dims(item, 2); }

 private:
  DimsView dims(const Item& item, int which) const {
    if (item.ndim <= 0) return {};
    return {dims_.data() + item.first_dim + int64_t{which} * item.ndim, static_cast<size_t>(item.ndim)};
  }
  void add(const Item& item);

  std::vector<Item> items_;
  NameList names_;
  std::vector<int64_t> dims_;
  std::vector<int32_t> first_item_;  // of each name; -1 - i once its items are in places_
  IndexTable places_;                // items of names that have several, by name and offsets
};

struct GlobalPlan {
  // For each rank the indexes of its items that it writes, in plan order.
  std::vector<std::vector<int32_t>> writes;
  // What the checkpoint will hold: tensors and objects in order of first appearance among the writes (rank
  // 0's, then rank 1's ...), chunks in order of rank and item, no locations. That is torch's order.
  Catalog catalog;
  // For each rank and each written item: the catalog's chunk index, or -1 - object index.
  std::vector<std::vector<int64_t>> targets;
};

// Drops duplicates (same name and offsets) so that each is written once, by the proposing rank with the least
// load so far (ties: lowest rank). Load is counted as torch does: items are visited in order of rank and
// item, at their first appearance; the chosen rank's load grows by the bytes of the *whole* tensor, by 1 for
// objects and tensors without elements. Then empty chunks are dropped: all of a tensor that has others, all
// but the first of a tensor that has not.
//
// Throws ValueError (key): a name with different shapes, dtypes or kinds, or boxes of different sizes at the
// same offsets; a shape without a size in bytes; and what check_coverage() finds, with the names of the
// tensors. Cost: n log n in the number of items, about 0.4 us each. Memory: about 40 bytes an item beside the
// result.
GlobalPlan plan_global(const std::vector<LocalPlan>& ranks);

// A fault of a tensor's chunks.
struct CoverageFault {
  enum class Kind { kOutOfBounds, kOverlap, kHole } kind;
  int64_t tensor;                      // index in the catalog
  int64_t chunk_a = -1, chunk_b = -1;  // catalog indexes: both of an overlap, the one out of bounds
  std::string text;                    // for people, boxes included, the tensor's name not
};

// Faults of all tensors in order, at most `max_faults`: every element must lie in exactly one chunk. The
// verdict is exact for any boxes. Chunks without elements and tensors without elements need nothing. Listing
// stops early for a tensor of very many chunks with very many faults; the last text then says so.
//
// Cost: n log n in the number of chunks of a tensor whatever dimensions are cut; for irregular boxes up to
// 2^k as much, k being the number of dimensions that are cut at all. Memory: one tensor's boxes.
std::vector<CoverageFault> check_coverage(const Catalog& catalog, int64_t max_faults = 1000);

// Splits written items over `num_files` files of a rank as torch's thread_count does: objects round-robin in
// order, then tensors by size descending (equal ones in order) into the file with the fewest tensor bytes so
// far (ties: lowest). One file: objects first, else in order. Returns item positions (into `bytes`) per file.
// Requires as many `is_object` as `bytes`. Throws ValueError when num_files < 1.
std::vector<std::vector<int32_t>> split_over_files(const std::vector<int64_t>& bytes,
                                                   const std::vector<bool>& is_object, int num_files);

}  // namespace milepost
