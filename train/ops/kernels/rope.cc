#include "train/ops/kernels/rope.h"

#include <cstring>

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

constexpr int64_t kPairs = kLanes / 2;
typedef float Eight __attribute__((vector_size(32)));

MILEPOST_INLINE Floats swap_pairs(Floats v) {
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
}
MILEPOST_INLINE Floats twice_each(const float* from, int64_t count) {
  float whole[kPairs] = {};
  Eight v;
  if (count == kPairs) {
    std::memcpy(&v, from, sizeof v);
  } else {
    std::memcpy(whole, from, static_cast<size_t>(count) * sizeof(float));
    std::memcpy(&v, whole, sizeof v);
  }
  return __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}

struct Rotate {
  // Eight pairs of all heads: elements times cos, plus their swapped neighbours times -sin, sin.
  template <class T>
  static MILEPOST_INLINE void run(const T* from, T* to, const float* cos, const float* sin, float direction,
                                  int64_t heads, int64_t from_stride, int64_t to_stride, int64_t pairs) {
    const Floats sign = Floats{-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1} * direction;
    for (int64_t i = 0; i < pairs; i += kPairs, from += kLanes, to += kLanes) {
      const int64_t count = pairs - i < kPairs ? pairs - i : kPairs;
      const Floats along = twice_each(cos + i, count), across = twice_each(sin + i, count) * sign;
      for (int64_t head = 0; head < heads; ++head) {
        const T* x = from + head * from_stride;
        T* y = to + head * to_stride;
        if (count == kPairs) {
          const Floats v = load(x);
          store(y, v * along + swap_pairs(v) * across);
        } else {
          const Floats v = load_part(x, 2 * count);
          store_part(y, v * along + swap_pairs(v) * across, 2 * count);
        }
      }
    }
  }
};

}  // namespace

template <class T>
void rotate_heads(const T* from, T* to, const float* cos, const float* sin, float direction, int64_t heads,
                  int64_t from_stride, int64_t to_stride, int64_t pairs) {
  run_best<Rotate>(from, to, cos, sin, direction, heads, from_stride, to_stride, pairs);
}

template void rotate_heads(const float*, float*, const float*, const float*, float, int64_t, int64_t, int64_t,
                           int64_t);
template void rotate_heads(const BFloat16*, BFloat16*, const float*, const float*, float, int64_t, int64_t,
                           int64_t, int64_t);

}  // namespace milepost::train::kernels
