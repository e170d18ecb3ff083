// One pass over a tensor and its moving average.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

// average += share * (values - average), from the nearer end, as PyTorch's lerp. T: float or BFloat16;
// computes in float32 and rounds to the nearest.
template <class T>
void move_average(float share, const T* values, T* average, int64_t count);

}  // namespace milepost::train::kernels
