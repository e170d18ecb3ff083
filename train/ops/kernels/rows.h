// Rows of numbers between dtypes: casts, weighted sums, dot products. Each of From, To, Kept is float or
// BFloat16. A value "kept as K" is rounded to K on the way.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

template <class From, class To>
void cast_row(const From* from, To* to, int64_t count);

// to = from * factor, kept as From.
template <class From, class To>
void scale_row(const From* from, float factor, To* to, int64_t count);

// sum += from * factor, the product kept as Kept (named by the pointer's type, which is not read).
template <class From, class Kept>
void add_scaled_row(const From* from, float factor, const Kept* kept_as, float* sum, int64_t count);

// to = a + b, each kept as To before and after.
template <class To>
void add_rows(const float* a, const float* b, To* to, int64_t count);

template <class A, class B>
float dot_rows(const A* a, const B* b, int64_t count);

// Lanes are added up in float32; a caller adds blocks.
template <class T>
float sum_of_squares(const T* values, int64_t count);

}  // namespace milepost::train::kernels
