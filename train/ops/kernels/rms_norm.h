// Rows of root mean square normalisation; see ops/rms_norm.h. T is float or BFloat16; rows are dense and
// `dim` long.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

// y = x * inverse * weight, inverse = 1 / sqrt(mean(x^2) + eps), which is kept for each row.
template <class T>
void rms_norm_forward(const T* x, const T* weight, T* y, float* inverse, int64_t rows, int64_t dim,
                      float eps);

// dx of each row; dweight [dim] is that of these rows alone, added in their order.
template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const float* inverse, T* dx, float* dweight,
                       int64_t rows, int64_t dim);

}  // namespace milepost::train::kernels
