#include "train/ops/kernels/matrix_product.h"

#include <algorithm>
#include <cstring>

#include "train/ops/kernels/gemm.h"
#include "train/ops/kernels/pack.h"
#include "train/ops/kernels/scratch.h"

namespace milepost::train {
namespace {

// A's tile, 256 KB, and the panels that pass over it, 192 KB, share the second-level cache.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kDepth = 512;
constexpr int64_t kPassColumns = 96;
constexpr int64_t kBlockColumns = 4 * kPassColumns;
constexpr int64_t kPackedFloats = int64_t{4} << 20;  // of a chunk: half of a third-level cache of 32 MB

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t chunk_columns(const MatrixProduct& p) {
  return std::max<int64_t>(1, kPackedFloats / p.k / kBlockColumns) * kBlockColumns;
}

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
Range columns_of(const MatrixProduct& p, int64_t chunk) {
  const int64_t columns = chunk_columns(p);
  return {chunk * columns, std::min(p.n, (chunk + 1) * columns)};
}

// The rows [row, row + rows) of A at [k, k + depth), dense, in a tile whose width is no power of two.
LeftOperand load_left(const MatrixProduct& p, int64_t row, int64_t rows, int64_t k, int64_t depth) {
  thread_local Scratch scratch;
  const int64_t count = p.a.is_transposed ? depth : rows;
  const int64_t width = p.a.is_transposed ? rows : depth;
  const int64_t tile_width = width + kPanelColumns;
  float* tile = scratch.get<float>(count * tile_width);
  const float* from = p.a.is_transposed ? p.a.data + k * p.a.stride + row : p.a.data + row * p.a.stride + k;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(tile + i * tile_width, from + i * p.a.stride, static_cast<size_t>(width) * sizeof(float));
  }
  if (p.a.is_transposed) return {tile, 1, tile_width};
  return {tile, tile_width, 1};
}

}  // namespace

int64_t num_chunks(const MatrixProduct& product) { return divide_up(product.n, chunk_columns(product)); }

int64_t packed_size(const MatrixProduct& product) {
  const int64_t columns = std::min(chunk_columns(product), product.n);
  return divide_up(columns, kPanelColumns) * kPanelColumns * product.k;
}

int64_t num_pack_parts(const MatrixProduct& product, int64_t chunk) {
  return divide_up(columns_of(product, chunk).size(), kPassColumns);
}

void pack_product(const MatrixProduct& product, int64_t chunk, int64_t part, float* packed) {
  const Range columns = columns_of(product, chunk);
  const int64_t begin = columns.begin + part * kPassColumns;
  const int64_t count = std::min(kPassColumns, columns.end - begin);
  float* to = packed + part * kPassColumns * product.k;
  if (product.b.is_transposed) {
    pack_transposed(product.b.data + begin * product.b.stride, product.b.stride, count, product.k, to);
  } else {
    pack_rows(product.b.data + begin, product.b.stride, product.k, count, to);
  }
}

int64_t num_blocks(const MatrixProduct& product, int64_t chunk) {
  return divide_up(product.m, kBlockRows) * divide_up(columns_of(product, chunk).size(), kBlockColumns);
}

void multiply_product(const MatrixProduct& product, int64_t chunk, int64_t block, const float* packed) {
  const Range columns = columns_of(product, chunk);
  const int64_t num_row_blocks = divide_up(product.m, kBlockRows);
  const int64_t row = block % num_row_blocks * kBlockRows;
  const int64_t rows = std::min(kBlockRows, product.m - row);
  const int64_t first = block / num_row_blocks * kBlockColumns;
  const int64_t last = std::min(columns.size(), first + kBlockColumns);
  for (int64_t k = 0; k < product.k; k += kDepth) {
    const int64_t depth = std::min(kDepth, product.k - k);
    const LeftOperand left = load_left(product, row, rows, k, depth);
    for (int64_t column = first; column < last; column += kPassColumns) {
      gemm_block<float>(rows, std::min(kPassColumns, last - column), depth, left,
                        {packed + column * product.k + k * kPanelColumns, product.k * kPanelColumns},
                        product.c + row * product.n + columns.begin + column, product.n,
                        k == 0 ? Sum::kReplace : Sum::kAdd);
    }
  }
}

}  // namespace milepost::train
