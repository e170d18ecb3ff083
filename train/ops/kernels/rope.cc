#include "train/ops/kernels/rope.h"

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

#if defined(__clang__)
MILEPOST_INLINE Floats swap_pairs(Floats v) {
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
}
MILEPOST_INLINE Floats twice_each(Floats v) {
  return __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}
#else
MILEPOST_INLINE Floats swap_pairs(Floats v) {
  return __builtin_shuffle(v, Ints{1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14});
}
MILEPOST_INLINE Floats twice_each(Floats v) {
  return __builtin_shuffle(v, Ints{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7});
}
#endif

struct Rotate {
  // cos twice, and -sin, sin: what the elements and their swapped neighbours are multiplied by.
  template <class T>
  static MILEPOST_INLINE Floats turned(const T*, Floats x, Floats cos, Floats sin, float direction) {
    const Floats sign = Floats{-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1} * direction;
    return x * twice_each(cos) + swap_pairs(x) * (twice_each(sin) * sign);
  }
  template <class T>
  static MILEPOST_INLINE void run(const T* from, T* to, const float* cos, const float* sin, float direction,
                                  int64_t heads, int64_t from_stride, int64_t to_stride, int64_t pairs) {
    constexpr int64_t kPairs = kLanes / 2;
    const int64_t whole = pairs / kPairs * kPairs, rest = pairs - whole;
    for (int64_t head = 0; head < heads; ++head, from += from_stride, to += to_stride) {
      for (int64_t i = 0; i < whole; i += kPairs) {
        const Floats c = load_part(cos + i, kPairs), s = load_part(sin + i, kPairs);
        store(to + 2 * i, turned(from, load(from + 2 * i), c, s, direction));
      }
      if (rest == 0) continue;
      const Floats c = load_part(cos + whole, rest), s = load_part(sin + whole, rest);
      store_part(to + 2 * whole, turned(from, load_part(from + 2 * whole, 2 * rest), c, s, direction),
                 2 * rest);
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
