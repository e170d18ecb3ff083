// Rotates pairs (2i, 2i + 1) of a token's heads by the token's angles; see ops/rope.h. T is float or
// BFloat16.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

// `heads` vectors of 2 * pairs elements, `from_stride` and `to_stride` elements apart; `to` may be `from`.
// direction 1 turns forward, -1 back.
template <class T>
void rotate_heads(const T* from, T* to, const float* cos, const float* sin, float direction, int64_t heads,
                  int64_t from_stride, int64_t to_stride, int64_t pairs);

}  // namespace milepost::train::kernels
