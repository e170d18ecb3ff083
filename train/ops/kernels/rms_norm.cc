#include "train/ops/kernels/rms_norm.h"

#include <algorithm>
#include <cmath>

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

struct Forward {
  template <class T>
  static MILEPOST_INLINE void run(const T* x, const T* weight, T* y, float* inverse, int64_t rows,
                                  int64_t dim, float eps) {
    const int64_t whole = dim / kLanes * kLanes, rest = dim - whole;
    for (int64_t row = 0; row < rows; ++row, x += dim, y += dim) {
      Floats squares = all(0);
      for (int64_t i = 0; i < whole; i += kLanes) squares += load(x + i) * load(x + i);
      if (rest > 0) {
        const Floats last = load_part(x + whole, rest);
        squares += last * last;
      }
      inverse[row] = 1 / std::sqrt(sum(squares) / static_cast<float>(dim) + eps);
      const Floats scale = all(inverse[row]);
      for (int64_t i = 0; i < whole; i += kLanes) store(y + i, load(x + i) * scale * load(weight + i));
      if (rest > 0) {
        store_part(y + whole, load_part(x + whole, rest) * scale * load_part(weight + whole, rest), rest);
      }
    }
  }
};

// With n = x * inverse: dx = inverse * (dy * weight - n * mean(dy * weight * n)), dweight = sum of dy * n.
struct Backward {
  template <class T>
  static MILEPOST_INLINE void run(const T* dy, const T* x, const T* weight, const float* inverse, T* dx,
                                  float* dweight, int64_t rows, int64_t dim) {
    const int64_t whole = dim / kLanes * kLanes, rest = dim - whole;
    std::fill(dweight, dweight + dim, 0.0F);
    for (int64_t row = 0; row < rows; ++row, x += dim, dy += dim, dx += dim) {
      const Floats scale = all(inverse[row]);
      Floats products = all(0);
      for (int64_t i = 0; i < whole; i += kLanes) {
        const Floats along = load(dy + i) * (load(x + i) * scale);
        products += along * load(weight + i);
        store(dweight + i, load(dweight + i) + along);
      }
      if (rest > 0) {
        const Floats along = load_part(dy + whole, rest) * (load_part(x + whole, rest) * scale);
        products += along * load_part(weight + whole, rest);
        store_part(dweight + whole, load_part(dweight + whole, rest) + along, rest);
      }
      const Floats mean = all(sum(products) / static_cast<float>(dim));
      for (int64_t i = 0; i < whole; i += kLanes) {
        store(dx + i, scale * (load(dy + i) * load(weight + i) - load(x + i) * scale * mean));
      }
      if (rest > 0) {
        const Floats normed = load_part(x + whole, rest) * scale;
        const Floats direct = load_part(dy + whole, rest) * load_part(weight + whole, rest);
        store_part(dx + whole, scale * (direct - normed * mean), rest);
      }
    }
  }
};

}  // namespace

template <class T>
void rms_norm_forward(const T* x, const T* weight, T* y, float* inverse, int64_t rows, int64_t dim,
                      float eps) {
  run_best<Forward>(x, weight, y, inverse, rows, dim, eps);
}

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const float* inverse, T* dx, float* dweight,
                       int64_t rows, int64_t dim) {
  run_best<Backward>(dy, x, weight, inverse, dx, dweight, rows, dim);
}

template void rms_norm_forward(const float*, const float*, float*, float*, int64_t, int64_t, float);
template void rms_norm_forward(const BFloat16*, const BFloat16*, BFloat16*, float*, int64_t, int64_t, float);
template void rms_norm_backward(const float*, const float*, const float*, const float*, float*, float*,
                                int64_t, int64_t);
template void rms_norm_backward(const BFloat16*, const BFloat16*, const BFloat16*, const float*, BFloat16*,
                                float*, int64_t, int64_t);

}  // namespace milepost::train::kernels
