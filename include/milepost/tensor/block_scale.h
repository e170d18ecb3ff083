// Block-quantised elements in memory: fp8 codes with one float scale a block of rows and columns (DeepSeek's
// `weight_scale_inv`), and MXFP4 (`_blocks`/`_scales`).
//
// All functions work on a stretch of ONE row of the matrix: `count` elements (0 is allowed) from column
// `first_column` on. Pointers to elements are to the first of the stretch, but `scales`, `amax` and `packed`
// to those of column 0: scales[b] belongs to columns b * block up to (b + 1) * block.
//
// Pure code on memory: nothing allocates, throws or keeps state; any thread may call; element pointers need
// no alignment. Requires: block > 0, first_column >= 0, and the types that are named; others are a bug
// (assert). Results are the same on every processor: a NaN is always the positive quiet one without payload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/tensor/dtype.h"

namespace milepost {

// value = code * scale in float32, rounded once to `to` (float32, bfloat16, float16): spec dcp-format,
// section 9. `from`: any float8 type with a sign. Cost: with AVX-512 and for e4m3fn about that of a copy (12
// GB/s of bfloat16 a core of Zen 4), else 1 to 2 GB/s: bench/block_scale_bench.cc.
void dequantise_row(std::byte* dst, DType to, const std::byte* codes, DType from, const float* scales,
                    int64_t block, int64_t first_column, int64_t count);

// Raises amax[c / block] to the largest magnitude among the elements. A NaN makes it NaN, which stays.
// `from`: float32, bfloat16, float16, float64 (rounded to float32). Cost: that of reading, with
// AVX-512; else 3 GB/s or more.
void accumulate_amax(float* amax, const std::byte* src, DType from, int64_t block, int64_t first_column,
                     int64_t count);

// The scale for a block of that largest magnitude: amax / 448, or 1 where that quotient is 0 (spec choices):
// so it is for magnitudes up to 2^-141.2 too, as zeros divided by a scale of 0 would be NaN.
float fp8_scale(float amax);

// code = e4m3fn(x / scale), a division in float32, to nearest even, saturating at +-448, infinity too (spec
// choices); NaN gives 0x7f. `from`: float32, bfloat16, float16, float64 (rounded to float32 first). A
// bfloat16 block quantised so with the scale of its amax, and dequantised to bfloat16, gives the same scale
// and codes again (if its amax is above 2^-100). Cost: 8 GB/s of bfloat16 a core with AVX-512, else
// 0.5.
void quantise_row(std::byte* codes, const std::byte* src, DType from, const float* scales, int64_t block,
                  int64_t first_column, int64_t count);

// MXFP4: element i of the row is a nibble of byte i / 2 (low nibble first), times 2^(scale - 127) of block i
// / block; NaN where the scale is 255. `packed` points at the row's first byte, `scales` at its first scale;
// results as in dequantise_row(), and with AVX-512 as fast.
void dequantise_mxfp4_row(std::byte* dst, DType to, const std::uint8_t* packed, const std::uint8_t* scales,
                          int64_t block, int64_t first_column, int64_t count);

}  // namespace milepost
