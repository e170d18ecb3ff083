#include "train/ops/kernels/score_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "train/ops/kernels/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define MILEPOST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#endif

namespace milepost::train {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// 2^f on [-1/2, 1/2], relative error 2e-9 before rounding: a minimax fit.
constexpr float kExp2[] = {1.0F,          0.69314718F,   0.24022646F,   0.055503286F,
                           0.0096184891F, 0.0013399931F, 0.00015345812F};
// Below it 2^x is zero in float32; keeps -infinity out of the arithmetic.
constexpr float kLowestExponent = -160.0F;

#if defined(__x86_64__)

MILEPOST_AVX512 inline __m512 exp2_avx512(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(kLowestExponent), x);  // in this order a NaN stays
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 rest = _mm512_sub_ps(x, whole);
  __m512 power = _mm512_set1_ps(kExp2[6]);
#pragma GCC unroll 6
  for (int i = 5; i >= 0; --i) power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(kExp2[i]));
  return _mm512_scalef_ps(power, whole);
}

MILEPOST_AVX512 inline __mmask16 visible_lanes(Visible visible, int64_t column) {
  const int64_t begin = std::clamp<int64_t>(visible.begin - column, 0, 16);
  const int64_t end = std::clamp<int64_t>(visible.end - column, begin, 16);
  return static_cast<__mmask16>((1U << end) - (1U << begin));
}

MILEPOST_AVX512 inline void store(float* out, __m512 value) { _mm512_storeu_ps(out, value); }
// Rounds to nearest even in integers, as processors without the instruction must.
MILEPOST_AVX512 inline void store(BFloat16* out, __m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i whole = _mm512_mask_blend_epi32(nan, rounded, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(_mm512_srli_epi32(whole, 16)));
}
MILEPOST_AVX512 inline __m512 load(const float* in) { return _mm512_loadu_ps(in); }
MILEPOST_AVX512 inline __m512 load(const BFloat16* in) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <class T>
MILEPOST_AVX512 float softmax_row_avx512(const float* scores, int64_t n, Visible visible, float scale2,
                                         RunningRow* row, T* out) {
  const __m512 scale = _mm512_set1_ps(scale2);
  __m512 max = _mm512_set1_ps(row->max);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(scores + i), scale);
    max = _mm512_mask_max_ps(max, visible_lanes(visible, i), scaled, max);
  }
  const float new_max = _mm512_reduce_max_ps(max);
  const __m512 minus_max = _mm512_set1_ps(new_max == -kInfinity ? 0.0F : -new_max);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 power = exp2_avx512(_mm512_fmadd_ps(_mm512_loadu_ps(scores + i), scale, minus_max));
    const __m512 seen = _mm512_maskz_mov_ps(visible_lanes(visible, i), power);
    sum = _mm512_add_ps(sum, seen);
    store(out + i, seen);
  }
  const float correction = row->max == new_max ? 1.0F : std::exp2(row->max - new_max);
  row->sum = row->sum * correction + _mm512_reduce_add_ps(sum);
  row->max = new_max;
  return correction;
}

template <class T>
MILEPOST_AVX512 void gradient_row_avx512(const float* scores, const float* dp, const float* lse2,
                                         const float* delta, int64_t n, Visible visible, float scale2,
                                         float scale, T* p, T* ds) {
  const __m512 factor2 = _mm512_set1_ps(scale2), factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = visible_lanes(visible, i);
    const __m512 exponent = _mm512_fmsub_ps(_mm512_loadu_ps(scores + i), factor2, _mm512_loadu_ps(lse2 + i));
    const __m512 probability = _mm512_maskz_mov_ps(lanes, exp2_avx512(exponent));
    const __m512 rest = _mm512_sub_ps(_mm512_loadu_ps(dp + i), _mm512_loadu_ps(delta + i));
    store(ds + i, _mm512_maskz_mul_ps(lanes, _mm512_mul_ps(probability, factor), rest));
    store(p + i, probability);
  }
}

MILEPOST_AVX512 void scale_row_avx512(float* values, int64_t n, float factor) {
  const __m512 by = _mm512_set1_ps(factor);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(values + i, _mm512_mul_ps(_mm512_loadu_ps(values + i), by));
  for (; i < n; ++i) values[i] *= factor;
}

template <class T>
MILEPOST_AVX512 float dot_row_avx512(const T* a, const T* b, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) sum = _mm512_fmadd_ps(load(a + i), load(b + i), sum);
  float rest = 0;
  for (; i < n; ++i) rest += to_float(a[i]) * to_float(b[i]);
  return _mm512_reduce_add_ps(sum) + rest;
}

template <class T>
MILEPOST_AVX512 void round_row_avx512(const float* values, int64_t n, float factor, T* out) {
  const __m512 by = _mm512_set1_ps(factor);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, _mm512_mul_ps(_mm512_loadu_ps(values + i), by));
  for (; i < n; ++i) out[i] = from_float<T>(values[i] * factor);
}

#endif

// The same without branches, for compilers to make vectors of: adding 1.5 * 2^23 rounds to a whole number and
// leaves it in the low bits.
inline float exp2_plain(float x) {
  constexpr float kRounder = 12582912.0F;
  x = x < -126.0F ? -126.0F : x;  // no denormals here: at most 1e-38 too much
  const float shifted = x + kRounder;
  const float rest = x - (shifted - kRounder);
  float power = kExp2[6];
  for (int i = 5; i >= 0; --i) power = power * rest + kExp2[i];
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  const float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(power) + exponent);
  return x == x ? scaled : x;
}

template <class T>
float softmax_row_plain(const float* scores, int64_t n, Visible visible, float scale2, RunningRow* row,
                        T* out) {
  float new_max = row->max;
  for (int64_t i = visible.begin; i < visible.end; ++i) {
    const float scaled = scores[i] * scale2;
    new_max = new_max > scaled ? new_max : scaled;
  }
  const float shift = new_max == -kInfinity ? 0.0F : new_max;
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const bool seen = i >= visible.begin && i < visible.end;
    const float power = seen ? exp2_plain(scores[i] * scale2 - shift) : 0.0F;
    sum += power;
    out[i] = from_float<T>(power);
  }
  const float correction = row->max == new_max ? 1.0F : std::exp2(row->max - new_max);
  row->sum = row->sum * correction + sum;
  row->max = new_max;
  return correction;
}

template <class T>
void gradient_row_plain(const float* scores, const float* dp, const float* lse2, const float* delta,
                        int64_t n, Visible visible, float scale2, float scale, T* p, T* ds) {
  for (int64_t i = 0; i < n; ++i) {
    const bool seen = i >= visible.begin && i < visible.end;
    const float probability = seen ? exp2_plain(scores[i] * scale2 - lse2[i]) : 0.0F;
    ds[i] = from_float<T>(seen ? probability * scale * (dp[i] - delta[i]) : 0.0F);
    p[i] = from_float<T>(probability);
  }
}

}  // namespace

template <class T>
float softmax_row(const float* scores, int64_t n, Visible visible, float scale2, RunningRow* row, T* out) {
#if defined(__x86_64__)
  if (has_avx512()) return softmax_row_avx512(scores, n, visible, scale2, row, out);
#endif
  return softmax_row_plain(scores, n, visible, scale2, row, out);
}

template <class T>
void gradient_row(const float* scores, const float* dp, const float* lse2, const float* delta, int64_t n,
                  Visible visible, float scale2, float scale, T* p, T* ds) {
#if defined(__x86_64__)
  if (has_avx512()) {
    return gradient_row_avx512(scores, dp, lse2, delta, n, visible, scale2, scale, p, ds);
  }
#endif
  gradient_row_plain(scores, dp, lse2, delta, n, visible, scale2, scale, p, ds);
}

void scale_row(float* values, int64_t n, float factor) {
#if defined(__x86_64__)
  if (has_avx512()) return scale_row_avx512(values, n, factor);
#endif
  for (int64_t i = 0; i < n; ++i) values[i] *= factor;
}

template <class T>
float dot_row(const T* a, const T* b, int64_t n) {
#if defined(__x86_64__)
  if (has_avx512()) return dot_row_avx512(a, b, n);
#endif
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

template <class T>
void round_row(const float* values, int64_t n, float factor, T* out) {
#if defined(__x86_64__)
  if (has_avx512()) return round_row_avx512(values, n, factor, out);
#endif
  for (int64_t i = 0; i < n; ++i) out[i] = from_float<T>(values[i] * factor);
}

#define MILEPOST_INSTANTIATE(T)                                                                           \
  template float softmax_row<T>(const float*, int64_t, Visible, float, RunningRow*, T*);                  \
  template void gradient_row<T>(const float*, const float*, const float*, const float*, int64_t, Visible, \
                                float, float, T*, T*);                                                    \
  template float dot_row<T>(const T*, const T*, int64_t);                                                 \
  template void round_row<T>(const float*, int64_t, float, T*);
MILEPOST_INSTANTIATE(float)
MILEPOST_INSTANTIATE(BFloat16)
#undef MILEPOST_INSTANTIATE

}  // namespace milepost::train
