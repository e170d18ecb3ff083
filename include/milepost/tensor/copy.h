// Moving and changing elements in memory: strided copies, casts, float8. Pure code on memory; nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/base/bytes.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost {

// Copies an n-d array of `sizes` elements of `element_size` bytes (1 to 16) from `src` to `dst`; strides are in BYTES and may be 0 (source) or any sign.
// Requires: the two do not overlap. Cost: memcpy of the longest run that is contiguous on both sides.
void copy_strided(std::byte* dst, DimsView dst_strides, const std::byte* src, DimsView src_strides, DimsView sizes, int64_t element_size);

// Reverses the bytes of each element in place (for complex types, of each half): big-endian files.
void swap_bytes(MutableBytes data, DType dtype);
// In place: negates all (torch's neg bit), or the imaginary parts (conj bit) of `data`.
void apply_neg(MutableBytes data, DType dtype);
void apply_conj(MutableBytes data, DType dtype);

// Whether every value of `from` is exactly a value of `to` (NaN payloads apart). Same type: true.
bool cast_is_lossless(DType from, DType to);
// Whether `cast` knows the pair: real float types (float8 included, packed ones not) among each other, and identical types.
bool cast_is_supported(DType from, DType to);

// Converts `count` elements. Floats round to nearest even, as torch's `.to()`; overflow becomes inf, or NaN where `to` has no inf. NaN stays NaN.
// Requires cast_is_supported; src and dst do not overlap. Cost: memory speed for the float32/bfloat16/float16 pairs.
void cast(std::byte* dst, DType to, const std::byte* src, DType from, int64_t count);

// One element as a double (complex: the real part), for statistics, tolerances and printing. Requires: not a packed type.
double element_as_double(const std::byte* element, DType dtype);

}  // namespace milepost
