#include "milepost/tensor/copy.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <cstring>

namespace milepost {
namespace {

struct Dim {
  int64_t size, dst_stride, src_stride;
};

// The dimensions of one copy, outermost first, and the bytes that one element of the innermost stands for.
struct Walk {
  std::array<Dim, kMaxDims> dims;
  size_t ndim = 0;
  int64_t element_size;
};

// Brings the copy into its simplest form: no dimension of size 1, the destination's smallest stride innermost
// (a copy may visit its elements in any order), and dimensions that continue each other on both sides made
// one.
Walk simplify(DimsView dst_strides, DimsView src_strides, DimsView sizes, int64_t element_size) {
  Walk walk;
  walk.element_size = element_size;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) walk.dims[walk.ndim++] = {sizes[d], dst_strides[d], src_strides[d]};
  }
  const auto begin = walk.dims.begin(), end = begin + static_cast<std::ptrdiff_t>(walk.ndim);
  std::stable_sort(
      begin, end, [](const Dim& a, const Dim& b) { return std::abs(a.dst_stride) > std::abs(b.dst_stride); });
  size_t kept = 0;
  for (size_t d = 0; d < walk.ndim; ++d) {
    const Dim inner = walk.dims[d];
    Dim& outer = walk.dims[kept == 0 ? 0 : kept - 1];
    if (kept > 0 && outer.dst_stride == inner.dst_stride * inner.size &&
        outer.src_stride == inner.src_stride * inner.size) {
      outer = {outer.size * inner.size, inner.dst_stride, inner.src_stride};
    } else {
      walk.dims[kept++] = inner;
    }
  }
  walk.ndim = kept;
  return walk;
}

bool contiguous(const Dim& dim, int64_t element_size) {
  return dim.dst_stride == element_size && dim.src_stride == element_size;
}

template <int64_t kSize>
void copy_row(std::byte* dst, const std::byte* src, const Dim& dim) {
  for (int64_t i = 0; i < dim.size; ++i) {
    std::memcpy(dst, src, kSize);
    dst += dim.dst_stride;
    src += dim.src_stride;
  }
}

void copy_row_of_any(std::byte* dst, const std::byte* src, const Dim& dim, int64_t element_size) {
  for (int64_t i = 0; i < dim.size; ++i) {
    std::memcpy(dst, src, static_cast<size_t>(element_size));
    dst += dim.dst_stride;
    src += dim.src_stride;
  }
}

// Both dimensions together, in squares of whole cache lines that pass through a compact buffer: each line of
// either side is touched once, whatever its distance to the next (a power of two would make them evict each
// other).
template <int64_t kSize>
void copy_plane(std::byte* dst, const std::byte* src, const Dim& outer, const Dim& inner) {
  constexpr int64_t kTile = 128 / kSize;
  alignas(64) std::byte tile[kTile][kTile][kSize];  // [inner][outer]
  for (int64_t i = 0; i < outer.size; i += kTile) {
    const int64_t rows = std::min(kTile, outer.size - i);
    for (int64_t j = 0; j < inner.size; j += kTile) {
      const int64_t columns = std::min(kTile, inner.size - j);
      const std::byte* const from = src + i * outer.src_stride + j * inner.src_stride;
      for (int64_t column = 0; column < columns; ++column) {
        const std::byte* const line = from + column * inner.src_stride;
        if (rows == kTile && outer.src_stride == kSize) {
          std::memcpy(tile[column], line, sizeof tile[column]);
          continue;
        }
        for (int64_t row = 0; row < rows; ++row) {
          std::memcpy(tile[column][row], line + row * outer.src_stride, kSize);
        }
      }
      std::byte* const to = dst + i * outer.dst_stride + j * inner.dst_stride;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          std::memcpy(to + row * outer.dst_stride + column * inner.dst_stride, tile[column][row], kSize);
        }
      }
    }
  }
}

using CopyRow = void (*)(std::byte*, const std::byte*, const Dim&);
using CopyPlane = void (*)(std::byte*, const std::byte*, const Dim&, const Dim&);

struct Kernels {
  CopyRow row;
  CopyPlane plane;
};

// Null functions for sizes that have none of their own.
Kernels kernels_for(int64_t element_size) {
  switch (element_size) {
    case 1:
      return {copy_row<1>, copy_plane<1>};
    case 2:
      return {copy_row<2>, copy_plane<2>};
    case 4:
      return {copy_row<4>, copy_plane<4>};
    case 8:
      return {copy_row<8>, copy_plane<8>};
    case 16:
      return {copy_row<16>, copy_plane<16>};
    default:
      return {nullptr, nullptr};
  }
}

// Calls visit(dst, src) for every position of the first `ndim` dimensions.
template <typename Visit>
void for_each_position(const Walk& walk, size_t ndim, std::byte* dst, const std::byte* src, Visit visit) {
  std::array<int64_t, kMaxDims> at;
  std::fill_n(at.begin(), ndim, 0);
  while (true) {
    visit(dst, src);
    size_t d = ndim;
    while (d > 0) {
      const Dim& dim = walk.dims[d - 1];
      dst += dim.dst_stride;
      src += dim.src_stride;
      if (++at[d - 1] < dim.size) break;
      dst -= dim.dst_stride * dim.size;
      src -= dim.src_stride * dim.size;
      at[--d] = 0;
    }
    if (d == 0) return;
  }
}

// Moves the dimension along which the source is densest next to the innermost one, where copy_plane takes
// both.
bool pair_for_transpose(Walk& walk) {
  if (walk.ndim < 2) return false;
  const Dim& inner = walk.dims[walk.ndim - 1];
  const auto outer_end = walk.dims.begin() + static_cast<std::ptrdiff_t>(walk.ndim - 1);
  const auto densest = std::min_element(walk.dims.begin(), outer_end, [](const Dim& a, const Dim& b) {
    return std::abs(a.src_stride) < std::abs(b.src_stride);
  });
  if (std::abs(densest->src_stride) >= std::abs(inner.src_stride) || densest->src_stride == 0) return false;
  std::rotate(densest, densest + 1, outer_end);
  return true;
}

}  // namespace

void copy_strided(std::byte* dst, DimsView dst_strides, const std::byte* src, DimsView src_strides,
                  DimsView sizes, int64_t element_size) {
  assert(sizes.size() <= kMaxDims && dst_strides.size() == sizes.size() &&
         src_strides.size() == sizes.size());
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  Walk walk = simplify(dst_strides, src_strides, sizes, element_size);
  if (walk.ndim > 0 && contiguous(walk.dims[walk.ndim - 1], element_size)) {
    walk.element_size *= walk.dims[--walk.ndim].size;
  }

  const Kernels kernels = kernels_for(walk.element_size);
  const auto bytes = static_cast<size_t>(walk.element_size);
  if (walk.ndim == 0) {
    std::memcpy(dst, src, bytes);
    return;
  }
  if (kernels.plane != nullptr && pair_for_transpose(walk)) {
    const Dim &outer = walk.dims[walk.ndim - 2], &inner = walk.dims[walk.ndim - 1];
    for_each_position(walk, walk.ndim - 2, dst, src,
                      [&](std::byte* to, const std::byte* from) { kernels.plane(to, from, outer, inner); });
    return;
  }
  const Dim& inner = walk.dims[walk.ndim - 1];
  for_each_position(walk, walk.ndim - 1, dst, src, [&](std::byte* to, const std::byte* from) {
    if (kernels.row != nullptr) {
      kernels.row(to, from, inner);
    } else {
      copy_row_of_any(to, from, inner, walk.element_size);
    }
  });
}

}  // namespace milepost
