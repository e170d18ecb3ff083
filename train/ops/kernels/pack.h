// Operands of gemm_block (gemm.h) out of matrices in memory. T is float or BFloat16.
#pragma once

#include <cstdint>

#include "train/ops/kernels/gemm.h"

namespace milepost::train {

// The panels of B = rows^T: column n is row n. `rows` are in units (k_units each, row_stride apart); columns
// up to the next multiple of 16 become zero. Writes n / 16 (rounded up) * k_units * 16 units; the panel
// stride is k_units * 16.
void pack_transposed(const void* rows_NK, int64_t row_stride_units, int64_t n, int64_t k_units, void* panels);

// The panels of B from its rows of n elements each; k counts elements, row_stride elements. An odd last row
// of BFloat16 is paired with zeros, columns up to the next multiple of 16 become zero. The panel stride is
// num_units<T>(k) * 16.
template <class T>
void pack_rows(const T* rows_KN, int64_t row_stride, int64_t k, int64_t n, void* panels);

// Row pairs as units: out[i] = (low[i], high[i]) for n elements, n a multiple of 16.
void interleave(const BFloat16* low, const BFloat16* high, int64_t n, uint32_t* out);

}  // namespace milepost::train
