#include "tensor/cast_kernels.h"

#include <cstring>
#include <type_traits>

#include "tensor/float_formats.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace milepost {
namespace {

// Elements converted by one trip of an inner loop: a constant, so that compilers vectorise it without a
// remainder.
constexpr int64_t kBlock = 64;

template <typename To, typename From, To (*kConvert)(From)>
[[gnu::always_inline]] inline void convert_run(std::byte* dst, const std::byte* src, int64_t count) {
  int64_t i = 0;
  for (; count - i >= kBlock; i += kBlock) {
    From in[kBlock];
    To out[kBlock];
    std::memcpy(in, src + i * static_cast<int64_t>(sizeof(From)), sizeof in);
    for (int64_t k = 0; k < kBlock; ++k) out[k] = kConvert(in[k]);
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(To)), out, sizeof out);
  }
  for (; i < count; ++i) {
    From in;
    std::memcpy(&in, src + i * static_cast<int64_t>(sizeof(From)), sizeof in);
    const To out = kConvert(in);
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(To)), &out, sizeof out);
  }
}

[[gnu::always_inline]] inline float same(float value) { return value; }
[[gnu::always_inline]] inline float from_bf16(uint16_t code) { return decode_bfloat16(code); }
[[gnu::always_inline]] inline uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(encode_bfloat16(value));
}
[[gnu::always_inline]] inline float from_f16(uint16_t code) { return decode_float<kFormatF16>(code); }
[[gnu::always_inline]] inline uint8_t to_e8m0(float value) {
  return static_cast<uint8_t>(encode_e8m0(value));
}

template <FloatFormat kFormat>
using CodeOf = std::conditional_t<kFormat.bits == 8, uint8_t, uint16_t>;

template <FloatFormat kFormat>
[[gnu::always_inline]] inline CodeOf<kFormat> to_code(float value) {
  return static_cast<CodeOf<kFormat>>(encode_float<kFormat>(value));
}

using ByteTable = std::array<float, 256>;

template <float (*kDecode)(uint32_t)>
constexpr ByteTable make_table() {
  ByteTable table{};
  for (uint32_t code = 0; code < table.size(); ++code) table[code] = kDecode(code);
  return table;
}

template <float (*kDecode)(uint32_t)>
inline constexpr ByteTable kTable = make_table<kDecode>();

template <float (*kDecode)(uint32_t)>
[[gnu::always_inline]] inline float from_byte(uint8_t code) {
  return kTable<kDecode>[code];
}

template <typename To, typename From, To (*kConvert)(From)>
void portable(std::byte* dst, const std::byte* src, int64_t count) {
  convert_run<To, From, kConvert>(dst, src, count);
}

template <FloatFormat kFormat>
constexpr CastKernels portable_byte_kernels() {
  return {portable<float, uint8_t, from_byte<decode_float<kFormat>>>,
          portable<uint8_t, float, to_code<kFormat>>};
}

#if defined(__x86_64__)
#define MILEPOST_AVX2 __attribute__((target("avx2,f16c")))
#define MILEPOST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))

template <typename To, typename From, To (*kConvert)(From)>
MILEPOST_AVX2 void avx2(std::byte* dst, const std::byte* src, int64_t count) {
  convert_run<To, From, kConvert>(dst, src, count);
}

template <typename To, typename From, To (*kConvert)(From)>
MILEPOST_AVX512 void avx512(std::byte* dst, const std::byte* src, int64_t count) {
  convert_run<To, From, kConvert>(dst, src, count);
}

MILEPOST_AVX2 void f16_to_float32(std::byte* dst, const std::byte* src, int64_t count) {
  for (; count >= 8; count -= 8) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
    _mm256_storeu_ps(reinterpret_cast<float*>(dst), _mm256_cvtph_ps(codes));
    src += 8 * sizeof(uint16_t);
    dst += 8 * sizeof(float);
  }
  convert_run<float, uint16_t, from_f16>(dst, src, count);
}

MILEPOST_AVX2 void float32_to_f16(std::byte* dst, const std::byte* src, int64_t count) {
  for (; count >= 8; count -= 8) {
    const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(src));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    src += 8 * sizeof(float);
    dst += 8 * sizeof(uint16_t);
  }
  convert_run<uint16_t, float, to_code<kFormatF16>>(dst, src, count);
}

template <FloatFormat kFormat>
constexpr CastKernels avx512_byte_kernels() {
  return {portable_byte_kernels<kFormat>().to_float32, avx512<uint8_t, float, to_code<kFormat>>};
}

CpuLevel detect_level() {
  if (!__builtin_cpu_supports("avx2")) return CpuLevel::kPortable;  // none has AVX2 but not F16C
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? CpuLevel::kAvx512 : CpuLevel::kAvx2;
}

// Null for types that gain nothing from vectors of this width.
CastKernels avx2_cast_kernels(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return {avx2<float, uint16_t, from_bf16>, avx2<uint16_t, float, to_bf16>};
    case DType::kFloat16:
      return {f16_to_float32, float32_to_f16};
    default:
      return {nullptr, nullptr};
  }
}

CastKernels avx512_cast_kernels(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return {avx512<float, uint16_t, from_bf16>, avx512<uint16_t, float, to_bf16>};
    case DType::kFloat16:
      return {f16_to_float32, float32_to_f16};
    case DType::kFloat8E4M3FN:
      return avx512_byte_kernels<kFormatE4M3FN>();
    case DType::kFloat8E5M2:
      return avx512_byte_kernels<kFormatE5M2>();
    case DType::kFloat8E4M3FNUZ:
      return avx512_byte_kernels<kFormatE4M3FNUZ>();
    case DType::kFloat8E5M2FNUZ:
      return avx512_byte_kernels<kFormatE5M2FNUZ>();
    default:
      return {nullptr, nullptr};
  }
}

#endif

CastKernels portable_cast_kernels(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {portable<float, float, same>, portable<float, float, same>};
    case DType::kBFloat16:
      return {portable<float, uint16_t, from_bf16>, portable<uint16_t, float, to_bf16>};
    case DType::kFloat16:
      return {portable<float, uint16_t, from_f16>, portable<uint16_t, float, to_code<kFormatF16>>};
    case DType::kFloat8E4M3FN:
      return portable_byte_kernels<kFormatE4M3FN>();
    case DType::kFloat8E5M2:
      return portable_byte_kernels<kFormatE5M2>();
    case DType::kFloat8E4M3FNUZ:
      return portable_byte_kernels<kFormatE4M3FNUZ>();
    case DType::kFloat8E5M2FNUZ:
      return portable_byte_kernels<kFormatE5M2FNUZ>();
    case DType::kFloat8E8M0FNU:
      return {portable<float, uint8_t, from_byte<decode_e8m0>>, portable<uint8_t, float, to_e8m0>};
    default:
      return {nullptr, nullptr};
  }
}

}  // namespace

CpuLevel cpu_level() {
#if defined(__x86_64__)
  static const CpuLevel level = detect_level();
  return level;
#else
  return CpuLevel::kPortable;
#endif
}

CastKernels cast_kernels(DType dtype, [[maybe_unused]] CpuLevel level) {
#if defined(__x86_64__)
  if (level != CpuLevel::kPortable) {
    const CastKernels vector =
        level == CpuLevel::kAvx512 ? avx512_cast_kernels(dtype) : avx2_cast_kernels(dtype);
    if (vector.from_float32 != nullptr) return vector;
  }
#endif
  return portable_cast_kernels(dtype);
}

}  // namespace milepost
