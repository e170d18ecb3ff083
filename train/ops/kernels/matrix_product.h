// C = A B for matrices larger than the caches, float32, cut into tasks that any thread may run in any order
// between two calls of the caller: first every packing task, then every product task. The bits do not depend
// on the schedule.
#pragma once

#include <cstdint>

namespace milepost::train {

// Rows of memory, `stride` floats apart; `is_transposed` says that the operand is their transpose.
struct MatrixRows {
  const float* data;
  int64_t stride;
  bool is_transposed;
};

struct MatrixProduct {
  int64_t m, n, k;
  MatrixRows a, b;  // A [M, K], B [K, N]
  float* c;         // [M, N], dense
};

// Columns of B are worked on in chunks: for each chunk from 0 on, pack_product for all parts, then
// multiply_product for all blocks. `packed` has room for packed_size floats and is written by pack_product
// alone.
int64_t num_chunks(const MatrixProduct& product);
int64_t packed_size(const MatrixProduct& product);
int64_t num_pack_parts(const MatrixProduct& product, int64_t chunk);
void pack_product(const MatrixProduct& product, int64_t chunk, int64_t part, float* packed);
int64_t num_blocks(const MatrixProduct& product, int64_t chunk);
void multiply_product(const MatrixProduct& product, int64_t chunk, int64_t block, const float* packed);

}  // namespace milepost::train
