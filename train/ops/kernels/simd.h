// Sixteen floats at a time, for kernels that are written once and compiled twice: for the plain target, and
// for AVX-512, chosen when the program runs.
//
//   struct Doubled {
//     static MILEPOST_INLINE void run(const float* x, float* y) { store(y, load(x) * 2); }
//   };
//   run_best<Doubled>(x, y);
//
// Everything a kernel calls must be inlined into it, or it would be compiled for the plain target only. Sums
// over lanes are taken in a fixed order.
#pragma once

#include <cstdint>
#include <cstring>

#include "train/ops/kernels/bfloat16.h"
#include "train/ops/kernels/cpu_features.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // all calls that pass vectors are inlined

#define MILEPOST_INLINE __attribute__((always_inline)) inline
#if defined(__x86_64__)
#define MILEPOST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#else
#define MILEPOST_AVX512
#endif

namespace milepost::train {

namespace simd {

inline constexpr int64_t kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

template <class Kernel, class... Arguments>
MILEPOST_AVX512 void run_avx512(const Arguments&... arguments) {
  Kernel::run(arguments...);
}
template <class Kernel, class... Arguments>
void run_best(const Arguments&... arguments) {
  if (has_avx512()) {
    run_avx512<Kernel>(arguments...);
  } else {
    Kernel::run(arguments...);
  }
}

MILEPOST_INLINE Floats all(float value) { return Floats{} + value; }

MILEPOST_INLINE Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}
MILEPOST_INLINE Floats load(const BFloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
}
// The first `count` lanes; the others are 0.
template <class T>
MILEPOST_INLINE Floats load_part(const T* from, int64_t count) {
  T whole[kLanes] = {};
  std::memcpy(whole, from, static_cast<size_t>(count) * sizeof(T));
  return load(whole);
}

MILEPOST_INLINE void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }
// The nearest bfloat16, ties to even, in the upper half of each word; a NaN stays one.
MILEPOST_INLINE Words rounded_to_halves(Floats values) {
  const Words bits = (Words)values;
  const Words rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return (values == values ? rounded : bits | 0x400000U) & 0xffff0000U;
}
MILEPOST_INLINE void store(BFloat16* to, Floats values) {
  const Halves halves = __builtin_convertvector(rounded_to_halves(values) >> 16, Halves);
  std::memcpy(to, &halves, sizeof halves);
}
template <class T>
MILEPOST_INLINE void store_part(T* to, Floats values, int64_t count) {
  T whole[kLanes];
  store(whole, values);
  std::memcpy(to, whole, static_cast<size_t>(count) * sizeof(T));
}

// What is left of `values` when they are kept as T for a moment.
MILEPOST_INLINE Floats rounded_as(const float*, Floats values) { return values; }
MILEPOST_INLINE Floats rounded_as(const BFloat16*, Floats values) {
  return (Floats)rounded_to_halves(values);
}

MILEPOST_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// Lanes added in pairs, the far half to the near one.
MILEPOST_INLINE float sum(Floats values) {
  float lanes[kLanes];
  store(lanes, values);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
MILEPOST_INLINE float largest(Floats values) {
  float lanes[kLanes];
  store(lanes, values);
  float best = lanes[0];
  for (float lane : lanes) best = lane > best ? lane : best;
  return best;
}

// e^x for x up to 88, e^88 above; relative error below 2e-7; 0 below -87.3. x = n ln 2 + r with |r| <= ln(2)
// / 2, and e^r by its Taylor polynomial of degree 7.
MILEPOST_INLINE Floats exp(Floats x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest whole number
  const Floats low = all(-87.33F), high = all(88.0F);
  const Floats below = x > high ? high : x;  // comparisons are false for NaN, which passes through
  const Floats inside = below < low ? low : below;
  const Floats n = (inside * kLog2E + kRounder) - kRounder;
  const Floats r = (inside - n * kLn2High) - n * kLn2Low;
  Floats p = all(1.0F / 5040);
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const Floats result = p * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
  return x < low ? all(0) : result;
}

MILEPOST_INLINE Floats sigmoid(Floats x) { return 1.0F / (1.0F + exp(-x)); }

}  // namespace simd
}  // namespace milepost::train
