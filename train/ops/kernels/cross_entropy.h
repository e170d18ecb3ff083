// Rows of cross-entropy; see ops/cross_entropy.h. T is float or BFloat16.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

// log(sum(exp(row))).
template <class T>
float log_sum_exp(const T* row, int64_t count);

// row becomes scale * exp(row - log_sum_exp), less `scale` at `label`.
template <class T>
void softmax_gradient(T* row, int64_t count, float log_sum_exp, int64_t label, float scale);

}  // namespace milepost::train::kernels
