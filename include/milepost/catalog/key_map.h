// KeyMap: how the tensors of one checkpoint are made of another's, declared without touching data.
//
// A target tensor is a stack of *parts* along its first dimension. Each part says where its elements come
// from: a box of a source tensor (renamed, sliced, stacked as one more row), rows of it in another order, or
// values computed from it (codes times scales). Maps compose: the target of one may be the source of the
// next.
//
// An expert's matrix is thus one row of a grouped tensor, and no grouping happens in memory: whoever wants a
// box of the target reads boxes of the sources.
//
// Plain values; built by one thread, then shared. Memory: about 100 bytes a part.
#pragma once

#include <cstdint>
#include <vector>

#include "milepost/catalog/catalog.h"

namespace milepost {

// Rows in another order: each group of `group` rows of the target is a [columns, group / columns] arrangement
// in row-major order, and the source's group is its transpose. group 0: rows keep their order.
struct RowOrder {
  int64_t group = 0, columns = 1;

  int64_t source_row(int64_t row) const {
    if (group == 0) return row;
    const int64_t start = row / group * group, t = row - start, length = group / columns;
    return start + (t % length) * columns + t / length;
  }
  friend bool operator==(const RowOrder&, const RowOrder&) = default;
};

struct TensorPart {
  enum class Values : uint8_t {
    kStored,       // elements of `source`, cast where the target's dtype differs
    kBlockScaled,  // fp8 codes in `source` times the scale of their block in `scales`: a matrix
    kMxfp4,        // 4-bit codes in `source` [.., G, B], one exponent a group in `scales` [.., G]
    kFp8Codes,     // `source` in blocks, each divided by its scale: float8_e4m3fn
    kFp8Scales,    // those scales: float32, one a block
    kZeros,
    kRandom,  // pseudo-random numbers of `seed`, for synthetic checkpoints
  };
  Values values = Values::kStored;
  int64_t first_row = 0, num_rows = 0;  // rows of the target, [first_row, first_row + num_rows)
  int64_t source = -1, scales = -1;     // tensors of the source catalog
  // kStored: where the part starts in the source, in the source's dimensions. Dimensions correspond from the
  // last one backwards: a source with one dimension fewer is one row of the target (stacked, num_rows 1); one
  // with one dimension more is taken at origin[0] (selected). Empty: at the start.
  Dims origin;
  RowOrder order;       // kStored, matrices of the same number of dimensions
  int64_t block = 128;  // kBlockScaled, kFp8Codes, kFp8Scales: rows and columns of a block
  uint64_t seed = 0;    // kRandom
};

struct KeyMap {
  Catalog target;                              // each tensor with one chunk that is the whole of it
  std::vector<std::vector<TensorPart>> parts;  // by target tensor; in order of first_row, without gaps

  // Adds a target tensor. Throws FormatError (kDuplicate) as Catalog::add_tensor does.
  void add(std::string name, DType dtype, DimsView shape, std::vector<TensorPart> made_of);
};

// Rows of a tensor in the sense of TensorPart: its first dimension; a 0-d tensor has one.
inline int64_t num_rows(DimsView shape) { return shape.empty() ? 1 : shape[0]; }

// A part that is a whole source tensor under another name.
TensorPart whole_part(int64_t source, DimsView shape);

}  // namespace milepost
