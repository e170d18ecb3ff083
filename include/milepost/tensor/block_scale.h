// Block-quantised elements in memory: fp8 codes with one float scale a block of rows and columns (DeepSeek's
// `weight_scale_inv`), and MXFP4 (`_blocks`/`_scales`).
//
// All functions work on a stretch of ONE row of the matrix: `count` elements from column `first_column` on.
// `scales` points at the scale of column 0's block in this row's block row, one float for each `block`
// columns. Pure code on memory; nothing allocates, throws or keeps state; pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/tensor/dtype.h"

namespace milepost {

// value = code * scale in float32, rounded once to `to` (float32, bfloat16, float16): spec dcp-format,
// section 9. `from`: any float8 type with a sign. Cost: memory speed with AVX-512 for e4m3fn; see bench.
void dequantise_row(std::byte* dst, DType to, const std::byte* codes, DType from, const float* scales,
                    int64_t block, int64_t first_column, int64_t count);

// Raises amax[c / block] to the largest magnitude among the elements (amax is indexed as `scales` above).
// NaN gives NaN.
void accumulate_amax(float* amax, const std::byte* src, DType from, int64_t block, int64_t first_column,
                     int64_t count);

// The scale for a block of that largest magnitude: amax / 448, or 1 where that is 0 (spec choices).
float fp8_scale(float amax);

// code = e4m3fn(x / scale), to nearest even, saturating at +-448 (spec choices). `from`: float32, bfloat16,
// float16, float64.
void quantise_row(std::byte* codes, const std::byte* src, DType from, const float* scales, int64_t block,
                  int64_t first_column, int64_t count);

// MXFP4: element i of the row is a nibble of byte i / 2 (low nibble first), times 2^(scale - 127) of block i
// / block; NaN where the scale is 255. `packed` points at the row's first byte, `scales` at its first scale.
void dequantise_mxfp4_row(std::byte* dst, DType to, const std::uint8_t* packed, const std::uint8_t* scales,
                          int64_t block, int64_t first_column, int64_t count);

}  // namespace milepost
