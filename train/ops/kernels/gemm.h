// C[M, N] = A[M, K] B[K, N] or C += A B for blocks that fit the caches: sums in float32, operands float32 or
// bfloat16. The callers choose blocks and lay out operands (pack.h); these are the inner loops.
//
// Layouts are in *units* of 32 bits: one float32, or two bfloat16 that are neighbours along K (k even, k odd;
// an odd K is padded with a zero). K below counts units.
//   A  any two strides: element (m, k) is unit data[m * row_stride + k * k_stride]. Rows of A as they are in
//      memory have k_stride 1; the transpose of a float32 matrix has row_stride 1.
//   B  panels of 16 columns: unit (k, n) is data[n / 16 * panel_stride + k * 16 + n % 16]. Panels are full:
//      columns past N are read and not used. Aligned to 4 bytes at least, faster to 64.
//   C  float32 rows; only N columns are touched.
// AVX-512 (with its bfloat16 dot products) where the processor has it, else AVX2 or plain loops that the
// compiler makes vectors of. Sums over k in order of k, so the bits depend on K and on the processor alone,
// not on how M and N are cut. Threads: pure functions.
#pragma once

#include <cstdint>

#include "train/ops/kernels/bfloat16.h"

namespace milepost::train {

constexpr int64_t kPanelColumns = 16;

struct LeftOperand {
  const void* data;
  int64_t row_stride, k_stride;
};
struct RightOperand {
  const void* data;
  int64_t panel_stride;
};

enum class Sum { kReplace, kAdd };  // what becomes of C's former content

// T is float or BFloat16, the type of A's and B's elements.
template <class T>
void gemm_block(int64_t m, int64_t n, int64_t k, LeftOperand a, RightOperand b, float* c,
                int64_t c_row_stride, Sum sum);

// Elements of T in a unit, and units that hold `count` elements.
template <class T>
constexpr int64_t kPerUnit = static_cast<int64_t>(4 / sizeof(T));
template <class T>
constexpr int64_t num_units(int64_t count) {
  return (count + kPerUnit<T> - 1) / kPerUnit<T>;
}

}  // namespace milepost::train
