// Shapes and boxes: the geometry of sharded tensors. A box is offsets and sizes in the index space of a whole
// tensor.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace milepost {

using Dims = boost::container::small_vector<int64_t, 4>;
using DimsView = std::span<const int64_t>;
inline constexpr size_t kMaxDims = 64;  // torch's limit

// Elements in a shape: the product, 1 for 0-d. A shape from a file must have passed checked_product; one that
// would fail it gives the largest int64_t.
int64_t num_elements(DimsView shape);

// Row-major strides in elements. A dimension before an empty one still gets the stride that the sizes imply
// (max(size, 1)), as torch computes them.
Dims row_major_strides(DimsView shape);

// "[7, 5]", "[]" for 0-d.
std::string dims_text(DimsView dims);

struct Box {
  Dims offsets, sizes;  // same length

  static Box whole(DimsView shape);
  int64_t num_elements() const { return milepost::num_elements(sizes); }
  bool empty() const;  // some size is 0; a 0-d box never is
  friend bool operator==(const Box& a, const Box& b) { return a.offsets == b.offsets && a.sizes == b.sizes; }
};

// "[0:4, 8:16]", "[]" for 0-d. Takes any numbers, also those of a box that was just refused.
std::string box_text(const Box& box);

// Whether `box` lies inside `shape` (an empty box may start at the end of a dimension, as torch writes them).
bool box_fits(const Box& box, DimsView shape);

// What is common to both; nullopt when they share no element. 0-d boxes always meet. (spec dcp-format,
// section 6) Requires: as many dimensions, and each box fits some shape (no offset + size overflows).
std::optional<Box> intersect(const Box& a, const Box& b);

// The rows that rank `index` of `count` gets when `length` rows are cut as torch.chunk does: ceil(length /
// count) each, the last ones short or empty. Returns {offset, size}; an empty piece has offset `length`.
std::pair<int64_t, int64_t> chunk_range(int64_t length, int64_t count, int64_t index);

// Splits the row-major linear range [begin, end) of elements of `sizes` into at most 2 * ndim + 1 boxes, in
// order, each of which is contiguous in row-major order. Requires 0 <= begin <= end <= num_elements(sizes).
void split_linear_range(DimsView sizes, int64_t begin, int64_t end, std::vector<Box>* boxes);

}  // namespace milepost
