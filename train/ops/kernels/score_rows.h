// What attention does to rows of scores between its products: the softmax with a running maximum, and the
// gradient of the scores. Logarithms and exponentials are to base 2, which spares a product an element.
// T is float or BFloat16, the type that the next product reads. Threads: pure functions.
#pragma once

#include <cstdint>

#include "train/ops/kernels/bfloat16.h"

namespace milepost::train {

// A row's part that may be seen: columns [begin, end), both within [0, n). Empty when begin >= end.
struct Visible {
  int64_t begin, end;
};

// The running softmax of one row of scores.
struct RunningRow {
  float max;  // of score * scale so far; -infinity before the first column
  float sum;  // of 2^(score * scale - max)
};

// One more block of n (a multiple of 16) scores: out[i] = 2^(scores[i] * scale2 - max) where visible, else 0,
// with `row` brought up to date. Returns what former sums and results must be multiplied with. `out` may be
// `scores`. `scale2` is the softmax's scale times log2(e).
template <class T>
float softmax_row(const float* scores, int64_t n, Visible visible, float scale2, RunningRow* row, T* out);

// Scores of one key with n (a multiple of 16) queries, their probabilities' gradients, and for each query
// the base-2 logarithm of its softmax's denominator and delta = sum(o * do). Where visible
//   p[i] = 2^(scores[i] * scale2 - lse2[i]),  ds[i] = p[i] * (dp[i] - delta[i]) * scale,
// else both are 0. `p` may be `scores` and `ds` may be `dp`.
template <class T>
void gradient_row(const float* scores, const float* dp, const float* lse2, const float* delta, int64_t n,
                  Visible visible, float scale2, float scale, T* p, T* ds);

// values[i] *= factor
void scale_row(float* values, int64_t n, float factor);
// sum(a * b), in an order that depends on n alone
template <class T>
float dot_row(const T* a, const T* b, int64_t n);
// out = values * factor, rounded to T
template <class T>
void round_row(const float* values, int64_t n, float factor, T* out);

}  // namespace milepost::train
