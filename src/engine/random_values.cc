#include "engine/random_values.h"

#include <algorithm>
#include <cmath>

#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kAtOnce = 2048;
constexpr int64_t kValuesAWord = 4;  // 16 bits each
const float kStep = 0.02F * std::sqrt(3.0F) / 32768.0F;

// A bijection of 64-bit words with good mixing (the finaliser of SplitMix64, Steele et al. 2014).
uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31);
}

}  // namespace

void random_values(std::byte* dst, DType dtype, uint64_t seed, int64_t first, int64_t count) {
  float values[kAtOnce + 2 * kValuesAWord];
  const uint64_t start = mixed(seed + 0x9e3779b97f4a7c15U);
  for (int64_t at = first; at < first + count;) {
    const int64_t word = at / kValuesAWord, skip = at % kValuesAWord;
    const int64_t wanted = std::min(kAtOnce, first + count - at);
    for (int64_t i = 0; i < (skip + wanted + kValuesAWord - 1) / kValuesAWord; ++i) {
      const uint64_t bits = mixed(start + static_cast<uint64_t>(word + i) * 0x9e3779b97f4a7c15U);
      for (int64_t k = 0; k < kValuesAWord; ++k) {
        values[i * kValuesAWord + k] = static_cast<float>(static_cast<int16_t>(bits >> (16 * k))) * kStep;
      }
    }
    cast(dst, dtype, reinterpret_cast<const std::byte*>(values + skip), DType::kFloat32, wanted);
    dst += wanted * dtype_size(dtype);
    at += wanted;
  }
}

}  // namespace milepost
