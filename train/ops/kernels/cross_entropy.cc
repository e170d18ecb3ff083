#include "train/ops/kernels/cross_entropy.h"

#include <cmath>
#include <limits>

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

// The row is read twice, the second time from cache.
struct LogSumExp {
  template <class T>
  static MILEPOST_INLINE void run(const T* row, int64_t count, float* result) {
    const int64_t whole = count / kLanes * kLanes;
    Floats tops = all(-std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < whole; i += kLanes) tops = larger(load(row + i), tops);
    float top = largest(tops);
    float tail[kLanes];
    if (whole < count) store(tail, load_part(row + whole, count - whole));
    for (int64_t i = 0; i < count - whole; ++i) top = tail[i] > top ? tail[i] : top;
    Floats sums = all(0);
    for (int64_t i = 0; i < whole; i += kLanes) sums += exp(load(row + i) - top);
    float total = sum(sums);
    if (whole < count) {
      store(tail, exp(load_part(row + whole, count - whole) - top));
      for (int64_t i = 0; i < count - whole; ++i) total += tail[i];
    }
    *result = top + std::log(total);
  }
};

struct SoftmaxGradient {
  template <class T>
  static MILEPOST_INLINE void run(T* row, int64_t count, float log_sum_exp, float scale) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(row + i, exp(load(row + i) - log_sum_exp) * scale);
    if (rest > 0) {
      store_part(row + whole, exp(load_part(row + whole, rest) - log_sum_exp) * scale, rest);
    }
  }
};

}  // namespace

template <class T>
float log_sum_exp(const T* row, int64_t count) {
  float result = 0;
  run_best<LogSumExp>(row, count, &result);
  return result;
}

template <class T>
void softmax_gradient(T* row, int64_t count, float log_sum_exp, int64_t label, float scale) {
  const float at_label = (std::exp(load_part(row + label, 1)[0] - log_sum_exp) - 1) * scale;
  run_best<SoftmaxGradient>(row, count, log_sum_exp, scale);
  store_part(row + label, all(at_label), 1);
}

template float log_sum_exp(const float*, int64_t);
template float log_sum_exp(const BFloat16*, int64_t);
template void softmax_gradient(float*, int64_t, float, int64_t, float);
template void softmax_gradient(BFloat16*, int64_t, float, int64_t, float);

}  // namespace milepost::train::kernels
