// Floats of 8 and 16 bits, each as five numbers, and their conversion from and to float32 one element at a
// time.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace milepost {

// A code is sign, exponent, mantissa. Values: (1 + m / 2^M) * 2^(e - bias), and m / 2^M * 2^(1 - bias) for e
// = 0.
struct FloatFormat {
  int bits;
  int mantissa_bits;
  int bias;
  uint32_t max_code;       // the largest finite value
  uint32_t overflow_code;  // what larger ones and infinity become
  uint32_t nan_code;
  bool has_negative_zero;
};

// float16 and float8_e5m2 follow IEEE 754. "fn": no infinities, and torch's casts saturate. "fnuz": one NaN
// in the place of negative zero, which overflow also gives.
inline constexpr FloatFormat kFormatF16{16, 10, 15, 0x7bff, 0x7c00, 0x7e00, true};
inline constexpr FloatFormat kFormatE5M2{8, 2, 15, 0x7b, 0x7c, 0x7f, true};
inline constexpr FloatFormat kFormatE4M3FN{8, 3, 7, 0x7e, 0x7e, 0x7f, true};
inline constexpr FloatFormat kFormatE5M2FNUZ{8, 2, 16, 0x7f, 0x80, 0x80, false};
inline constexpr FloatFormat kFormatE4M3FNUZ{8, 3, 8, 0x7f, 0x80, 0x80, false};

inline constexpr uint32_t kFloat32Infinity = 0x7f800000;
inline constexpr uint32_t kFloat32QuietBit = 0x00400000;

// Free of branches, so that loops over it become vector code.
template <FloatFormat kFormat>
[[gnu::always_inline]] inline uint32_t encode_float(float value) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(128 - kFormat.bias) << 23;
  // Adding 2^23 units of the smallest subnormal leaves the number of such units, correctly rounded, in the
  // mantissa.
  constexpr uint32_t kAligner = kMinNormal + (static_cast<uint32_t>(kDropped) << 23);
  constexpr uint32_t kRebias = kMinNormal - (uint32_t{1} << 23);

  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = (bits >> 31) << (kFormat.bits - 1);
  const uint32_t odd = (magnitude >> kDropped) & 1;
  const uint32_t normal = (magnitude - kRebias + ((uint32_t{1} << (kDropped - 1)) - 1) + odd) >> kDropped;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner)) - kAligner;
  uint32_t code = magnitude < kMinNormal ? subnormal : normal;
  code = code > kFormat.max_code ? kFormat.overflow_code : code;
  uint32_t nan = kFormat.nan_code;
  if constexpr (kFormat.bits == 16) nan |= (magnitude >> kDropped) & ((1u << kFormat.mantissa_bits) - 1);
  code = magnitude > kFloat32Infinity ? nan : code;
  if constexpr (kFormat.has_negative_zero) return code | sign;
  return code == 0 ? 0 : code | sign;
}

template <FloatFormat kFormat>
constexpr float decode_float(uint32_t code) {
  constexpr uint32_t kSignBit = 1u << (kFormat.bits - 1);
  constexpr uint32_t kMantissaMask = (1u << kFormat.mantissa_bits) - 1;
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  const uint32_t sign = (code & kSignBit) != 0 ? 0x80000000 : 0;
  const uint32_t magnitude = code & (kSignBit - 1);
  const uint32_t mantissa = magnitude & kMantissaMask;
  if (!kFormat.has_negative_zero && code == kSignBit)
    return std::bit_cast<float>(kFloat32Infinity | kFloat32QuietBit);
  if (magnitude > kFormat.max_code) {
    const bool infinite = magnitude == kFormat.overflow_code;
    const uint32_t payload = infinite ? 0 : kFloat32QuietBit | mantissa << kDropped;
    return std::bit_cast<float>(sign | kFloat32Infinity | payload);
  }
  if (magnitude <= kMantissaMask) {
    constexpr uint32_t kUnit = static_cast<uint32_t>(128 - kFormat.bias - kFormat.mantissa_bits) << 23;
    const float value = static_cast<float>(mantissa) * std::bit_cast<float>(kUnit);
    return sign != 0 ? -value : value;
  }
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias) << 23;
  return std::bit_cast<float>(sign | ((magnitude << kDropped) + kRebias));
}

[[gnu::always_inline]] inline uint32_t encode_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > kFloat32Infinity ? (bits | kFloat32QuietBit) >> 16 : rounded;
}

[[gnu::always_inline]] constexpr float decode_bfloat16(uint32_t code) {
  return std::bit_cast<float>(code << 16);
}

// float8_e8m0fnu: powers of two, 2^(code - 127); 255 is NaN. Signs are lost, zero becomes the smallest power.
[[gnu::always_inline]] inline uint32_t encode_e8m0(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffff;
  const uint32_t exponent = magnitude >> 23;
  const uint32_t mantissa = magnitude & 0x007fffff;
  // Half way goes up, but for subnormals: there it goes to 2^-127, which is just that half.
  const uint32_t up = mantissa > 0x00400000 || (mantissa == 0x00400000 && exponent > 0) ? 1 : 0;
  return exponent == 255 ? 255 : exponent + up;
}

constexpr float decode_e8m0(uint32_t code) {
  const uint32_t quiet_nan = kFloat32Infinity | kFloat32QuietBit;
  return std::bit_cast<float>(code == 0 ? 0x00400000 : code == 255 ? quiet_nan : code << 23);
}

}  // namespace milepost
