// Moving and changing elements in memory: strided copies, casts, float8.
//
// Pure code on memory: nothing here allocates, throws or keeps state, so any thread may call anything.
// Elements are little-endian, as on disk and on every machine that this builds for; pointers need no
// alignment. What a function "requires" is asserted, not reported: sizes and strides that come from a file
// are checked by who reads the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/base/bytes.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost {

// Copies an n-d array of `sizes` elements of `element_size` bytes (1 to 16) from `src` to `dst`. Strides are
// in BYTES and may have any sign, and be 0 on the source's side (the element is repeated).
// Requires: the two do not overlap, at most kMaxDims dimensions, as many strides as sizes.
// Cost: one memcpy for each longest run that is contiguous on both sides; transposes at 1 to 2 GB/s or so, in
// tiles that touch each cache line once.
void copy_strided(std::byte* dst, DimsView dst_strides, const std::byte* src, DimsView src_strides,
                  DimsView sizes, int64_t element_size);

// Reverses the bytes of each element in place (for complex types, of each half): files of big-endian
// machines. Elements that are cut off at the end of `data` are left alone, as are types of one byte and less.
void swap_bytes(MutableBytes data, DType dtype);

// In place: negates all of `data` (torch's neg bit), or its imaginary parts (the conj bit; real types have
// none). Integers wrap; types without negative values stay as they are.
void apply_neg(MutableBytes data, DType dtype);
void apply_conj(MutableBytes data, DType dtype);

// Whether every value of `from` is exactly a value of `to` (NaN payloads apart). Same type: true. It tells of
// numbers only: also for pairs that `cast` does not know, such as int8 and int16.
bool cast_is_lossless(DType from, DType to);

// Whether `cast` knows the pair: real float types (float8 included, packed ones not) among each other, and
// identical types.
bool cast_is_supported(DType from, DType to);

// Converts `count` elements with the results of torch 2.13's `.to()`, to the bit but for NaN payloads:
// - rounds to nearest, ties to even, subnormals too; from float64, narrow types are reached through float32;
// - overflow becomes infinity, but 448 (the largest value) in float8_e4m3fn and NaN in the two fnuz types;
// - float8_e8m0fnu takes the nearest power of two of the magnitude: half way goes up, zero becomes 2^-127;
// - NaN stays NaN, is made quiet, and keeps the payload bits that `to` has room for.
// Requires: cast_is_supported, and that src and dst do not overlap.
// Cost: memory speed between float32, bfloat16 and float16, and to float8 with AVX-512; 1 to 3 G elements/s
// from float8, 0.3 to it elsewhere.
void cast(std::byte* dst, DType to, const std::byte* src, DType from, int64_t count);

// One element as a double (complex: the real part; bool: 0 or 1), for statistics, tolerances and printing.
// Exact but for 64-bit integers beyond 2^53. Requires: not a packed type (gives NaN).
double element_as_double(const std::byte* element, DType dtype);

}  // namespace milepost
