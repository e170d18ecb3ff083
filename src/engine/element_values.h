// Elements of any dtype as numbers, in blocks: for statistics and for comparing with a tolerance.
//
// A complex element counts as two *components*, real then imaginary; every other element is its own
// component.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/tensor/dtype.h"

namespace milepost {

inline constexpr int64_t kBlockElements = 2048;  // a block of doubles stays in the first-level cache

// Whether single elements are numbers: not for the types that pack several into a byte.
bool has_element_values(DType dtype);
inline bool is_complex(DType dtype) { return dtype_info(dtype).kind == DTypeKind::kComplex; }
inline int64_t num_components(DType dtype) { return is_complex(dtype) ? 2 : 1; }

// Writes `count` elements as count * num_components(dtype) doubles. 64-bit integers round to the nearest
// double. Requires has_element_values(dtype); any alignment.
void elements_as_doubles(const std::byte* elements, DType dtype, int64_t count, double* out);

}  // namespace milepost
