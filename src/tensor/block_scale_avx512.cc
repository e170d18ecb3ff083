// The kernels of block_scale_kernels.h for float8_e4m3fn and MXFP4 with AVX-512.
#include "tensor/block_scale_kernels.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
// Its own header makes "undefined" vectors out of uninitialised variables (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/float_formats.h"

namespace milepost {
namespace {

#define MILEPOST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#define MILEPOST_AVX512_INLINE MILEPOST_AVX512 __attribute__((always_inline)) inline

constexpr int64_t kLanes = 16;  // float32 in a vector
constexpr int kDropped = 23 - kFormatE4M3FN.mantissa_bits;
constexpr int kMinNormal = (128 - kFormatE4M3FN.bias) << 23;
constexpr int kRebias = kMinNormal - (1 << 23);
constexpr int kHighHalves = static_cast<int>(0xffff0000);

// Runs step(dst, src, scale) for each kCount elements, and for the last ones with a copy of them among zeros.
template <void (*kStep)(std::byte*, const std::byte*, float), int64_t kCount, int64_t kDstSize,
          int64_t kSrcBits>
MILEPOST_AVX512_INLINE void for_each_vector(std::byte* dst, const std::byte* src, float scale,
                                            int64_t count) {
  for (; count >= kCount; count -= kCount) {
    kStep(dst, src, scale);
    dst += kCount * kDstSize;
    src += kCount * kSrcBits / 8;
  }
  if (count <= 0) return;
  std::array<std::byte, kCount * kSrcBits / 8> last_src{};
  std::array<std::byte, kCount * kDstSize> last_dst;
  std::memcpy(last_src.data(), src, static_cast<size_t>((count * kSrcBits + 7) / 8));
  kStep(last_dst.data(), last_src.data(), scale);
  std::memcpy(dst, last_dst.data(), static_cast<size_t>(count * kDstSize));
}

// Codes as bfloat16, which has all their values: each is shifted into the place of exponent and mantissa.
// Those of subnormal numbers would come out with an implied 1, so a table has them.
MILEPOST_AVX512_INLINE __m512i decode_e4m3fn(__m256i codes) {
  constexpr int kShift = 7 - kFormatE4M3FN.mantissa_bits;
  constexpr int kSubnormals = 1 << kFormatE4M3FN.mantissa_bits;
  // m * 2^-9 for m = 0 to 7, two in a lane.
  const __m512i subnormals =
      _mm512_castsi128_si512(_mm_setr_epi32(0x3b000000, 0x3bc03b80, 0x3c203c00, 0x3c603c40));
  const __m512i wide = _mm512_cvtepu8_epi16(codes);
  const __m512i magnitude = _mm512_and_si512(wide, _mm512_set1_epi16(0x7f));
  const __mmask32 is_subnormal = _mm512_cmplt_epi16_mask(magnitude, _mm512_set1_epi16(kSubnormals));
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(kFormatE4M3FN.nan_code));
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(magnitude, kShift), _mm512_set1_epi16(kRebias >> 16));
  bits = _mm512_mask_permutexvar_epi16(bits, is_subnormal, magnitude, subnormals);
  const __m512i sign = _mm512_slli_epi16(_mm512_srli_epi16(wide, 7), 15);
  return _mm512_mask_mov_epi16(_mm512_or_si512(bits, sign), is_nan, _mm512_set1_epi16(0x7fc0));
}

// The bfloat16 is the high half of each lane of the result. Requires: no NaN but the one without payload.
MILEPOST_AVX512_INLINE __m512i round_to_bfloat16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}

// Elements with even and with odd numbers go apart: no lane has to move.
MILEPOST_AVX512_INLINE void scale_to_bfloat16(std::byte* dst, __m512i bfloats, __m512 scale) {
  const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(bfloats, 16));
  const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(bfloats, _mm512_set1_epi32(kHighHalves)));
  const __m512i low = _mm512_srli_epi32(round_to_bfloat16(_mm512_mul_ps(even, scale)), 16);
  const __m512i high = round_to_bfloat16(_mm512_mul_ps(odd, scale));
  _mm512_storeu_si512(dst, _mm512_mask_mov_epi16(low, 0xaaaaaaaa, high));
}

template <DType kTo>
MILEPOST_AVX512_INLINE void scale_to(std::byte* dst, __m256i bfloats, __m512 scale) {
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bfloats), 16);
  const __m512 product = _mm512_mul_ps(_mm512_castsi512_ps(bits), scale);
  if constexpr (kTo == DType::kFloat32) {
    _mm512_storeu_ps(dst, product);
  } else {
    const __m256i halves = _mm512_cvtps_ph(product, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), halves);
  }
}

// Nibbles as bfloat16, by a table of all values. An index uses the low 5 bits of its lane, of which the fifth
// is left over from the other nibble: so the table is there twice.
MILEPOST_AVX512_INLINE __m512i decode_e2m1(__m128i packed) {
  const __m512i table = _mm512_broadcast_i64x4(_mm256_setr_epi32(
      0x3f000000, 0x3fc03f80, 0x40404000, 0x40c04080, static_cast<int>(0xbf008000),
      static_cast<int>(0xbfc0bf80), static_cast<int>(0xc040c000), static_cast<int>(0xc0c0c080)));
  const __m512i wide = _mm512_cvtepu8_epi32(packed);
  return _mm512_permutexvar_epi16(_mm512_or_si512(wide, _mm512_slli_epi32(wide, 12)), table);
}

// From the 32 bytes or, of MXFP4, 16 bytes at codes.
template <DType kTo, int64_t kSize, bool kIsMxfp4>
MILEPOST_AVX512_INLINE void dequantise_vectors(std::byte* dst, const std::byte* codes, float scale) {
  __m512i bfloats;
  if constexpr (kIsMxfp4) {
    bfloats = decode_e2m1(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  } else {
    bfloats = decode_e4m3fn(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  }
  if constexpr (kTo == DType::kBFloat16) {
    scale_to_bfloat16(dst, bfloats, _mm512_set1_ps(scale));
  } else {
    scale_to<kTo>(dst, _mm512_castsi512_si256(bfloats), _mm512_set1_ps(scale));
    scale_to<kTo>(dst + kLanes * kSize, _mm512_extracti64x4_epi64(bfloats, 1), _mm512_set1_ps(scale));
  }
}

// A finite scale leaves only the NaNs of codes, which decode_e4m3fn() makes the right ones.
template <DType kTo, int64_t kSize>
MILEPOST_AVX512 void dequantise_e4m3fn(std::byte* dst, const std::byte* codes, float scale, int64_t count) {
  if (!std::isfinite(scale)) {
    return dequantise_run(DType::kFloat8E4M3FN, kTo, CpuLevel::kPortable)(dst, codes, scale, count);
  }
  for_each_vector<dequantise_vectors<kTo, kSize, false>, 2 * kLanes, kSize, 8>(dst, codes, scale, count);
}

// No code is NaN, and the only scale that is not finite is the right NaN.
template <DType kTo, int64_t kSize>
MILEPOST_AVX512 void dequantise_mxfp4(std::byte* dst, const std::byte* packed, float scale, int64_t count) {
  for_each_vector<dequantise_vectors<kTo, kSize, true>, 2 * kLanes, kSize, 4>(dst, packed, scale, count);
}

template <DType kFrom>
MILEPOST_AVX512_INLINE __m512 load_as_float32(const std::byte* src) {
  if constexpr (kFrom == DType::kFloat32) {
    return _mm512_loadu_ps(src);
  } else {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
    if constexpr (kFrom == DType::kFloat16) return _mm512_cvtph_ps(codes);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
  }
}

// As encode_float() does it, but for overflow: what is beyond the largest value is made that before it is
// rounded.
MILEPOST_AVX512_INLINE __m128i encode_e4m3fn(__m512 values) {
  constexpr int kLargest = kRebias + (static_cast<int>(kFormatE4M3FN.max_code) << kDropped);
  constexpr int kAligner = kMinNormal + (kDropped << 23);
  constexpr int kHalf = (1 << (kDropped - 1)) - 1;
  const __m512i bits = _mm512_castps_si512(values);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i magnitude =
      _mm512_min_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)), _mm512_set1_epi32(kLargest));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, kDropped), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(magnitude, odd), _mm512_set1_epi32(kHalf - kRebias));
  const __m512i normal = _mm512_srli_epi32(sum, kDropped);
  const __m512i aligner = _mm512_set1_epi32(kAligner);
  const __m512 aligned = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(aligner));
  const __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(kMinNormal));
  const __m512i code = _mm512_mask_sub_epi32(normal, is_subnormal, _mm512_castps_si512(aligned), aligner);
  const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(bits, 31), 7);
  const __m512i nan = _mm512_set1_epi32(kFormatE4M3FN.nan_code);
  return _mm512_cvtepi32_epi8(_mm512_mask_mov_epi32(_mm512_or_si512(code, sign), is_nan, nan));
}

template <DType kFrom>
MILEPOST_AVX512_INLINE void quantise_vector(std::byte* codes, const std::byte* src, float scale) {
  const __m512 quotient = _mm512_div_ps(load_as_float32<kFrom>(src), _mm512_set1_ps(scale));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), encode_e4m3fn(quotient));
}

template <DType kFrom, int64_t kSize>
MILEPOST_AVX512 void quantise_avx512(std::byte* codes, const std::byte* src, float scale, int64_t count) {
  for_each_vector<quantise_vector<kFrom>, kLanes, 1, 8 * kSize>(codes, src, scale, count);
}

template <DType kFrom>
MILEPOST_AVX512 float amax_16_bit_avx512(const std::byte* src, int64_t count) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i largest = _mm512_setzero_si512();
  for (; count >= 32; count -= 32, src += 64) {
    largest = _mm512_max_epi16(largest, _mm512_and_si512(_mm512_loadu_si512(src), magnitude));
  }
  const __mmask32 rest = (uint32_t{1} << count) - 1;
  largest = _mm512_max_epi16(largest, _mm512_and_si512(_mm512_maskz_loadu_epi16(rest, src), magnitude));
  const __m256i half =
      _mm256_max_epi16(_mm512_castsi512_si256(largest), _mm512_extracti64x4_epi64(largest, 1));
  const __m128i quarter = _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  // The one horizontal instruction finds a minimum.
  const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
  const uint32_t code = ~static_cast<uint32_t>(_mm_cvtsi128_si32(smallest)) & 0xffff;
  return with_one_nan(kFrom == DType::kBFloat16 ? decode_bfloat16(code) : decode_float<kFormatF16>(code));
}

MILEPOST_AVX512 float amax_float32_avx512(const std::byte* src, int64_t count) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (; count >= kLanes; count -= kLanes, src += 64) {
    largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_loadu_si512(src), magnitude));
  }
  const auto rest = static_cast<__mmask16>((1u << count) - 1);
  largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_maskz_loadu_epi32(rest, src), magnitude));
  return with_one_nan(std::bit_cast<float>(_mm512_reduce_max_epi32(largest)));
}

}  // namespace

DequantiseRun avx512_dequantise(DType from, DType to) {
  if (from != DType::kFloat8E4M3FN) return nullptr;
  switch (to) {
    case DType::kFloat32:
      return dequantise_e4m3fn<DType::kFloat32, 4>;
    case DType::kBFloat16:
      return dequantise_e4m3fn<DType::kBFloat16, 2>;
    case DType::kFloat16:
      return dequantise_e4m3fn<DType::kFloat16, 2>;
    default:
      return nullptr;
  }
}

DequantiseRun avx512_dequantise_mxfp4(DType to) {
  switch (to) {
    case DType::kFloat32:
      return dequantise_mxfp4<DType::kFloat32, 4>;
    case DType::kBFloat16:
      return dequantise_mxfp4<DType::kBFloat16, 2>;
    case DType::kFloat16:
      return dequantise_mxfp4<DType::kFloat16, 2>;
    default:
      return nullptr;
  }
}

QuantiseRun avx512_quantise(DType from) {
  switch (from) {
    case DType::kFloat32:
      return quantise_avx512<DType::kFloat32, 4>;
    case DType::kBFloat16:
      return quantise_avx512<DType::kBFloat16, 2>;
    case DType::kFloat16:
      return quantise_avx512<DType::kFloat16, 2>;
    default:
      return nullptr;
  }
}

AmaxRun avx512_amax(DType from) {
  switch (from) {
    case DType::kFloat32:
      return amax_float32_avx512;
    case DType::kBFloat16:
      return amax_16_bit_avx512<DType::kBFloat16>;
    case DType::kFloat16:
      return amax_16_bit_avx512<DType::kFloat16>;
    default:
      return nullptr;
  }
}

}  // namespace milepost

#else

namespace milepost {

DequantiseRun avx512_dequantise(DType, DType) { return nullptr; }
DequantiseRun avx512_dequantise_mxfp4(DType) { return nullptr; }
QuantiseRun avx512_quantise(DType) { return nullptr; }
AmaxRun avx512_amax(DType) { return nullptr; }

}  // namespace milepost

#endif
