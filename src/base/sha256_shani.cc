#include "base/sha256_kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

namespace milepost {
namespace {

#define MILEPOST_SHA __attribute__((target("sha,sse4.1")))

// The instructions want the state as (a b e f) and (c d g h), high words first.
struct RoundState {
  __m128i abef, cdgh;
};

MILEPOST_SHA inline RoundState load_state(const uint32_t* words) {
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words + 4)), 0x1B);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xF0)};
}

MILEPOST_SHA inline void store_state(const RoundState& state, uint32_t* words) {
  const __m128i feba = _mm_shuffle_epi32(state.abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(state.cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words + 4), _mm_alignr_epi8(dchg, feba, 8));
}

// w holds the last sixteen message words; slot g % 4 receives words 4g to 4g + 3.
MILEPOST_SHA inline __m128i next_words(const std::byte* block, int g, __m128i (&w)[4]) {
  if (g < 4) {
    const __m128i byte_order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * g));
    return w[g] = _mm_shuffle_epi8(raw, byte_order);
  }
  const __m128i& before = w[(g + 3) & 3];
  __m128i words = _mm_sha256msg1_epu32(w[g & 3], w[(g + 1) & 3]);
  words = _mm_add_epi32(words, _mm_alignr_epi8(before, w[(g + 2) & 3], 4));
  return w[g & 3] = _mm_sha256msg2_epu32(words, before);
}

template <int N>
MILEPOST_SHA void compress(Sha256Lane* lanes, int64_t num_blocks) {
  RoundState state[N];
  const std::byte* data[N];
#pragma GCC unroll 4
  for (int s = 0; s < N; ++s) {
    state[s] = load_state(lanes[s].words);
    data[s] = lanes[s].data;
  }
  for (; num_blocks > 0; --num_blocks) {
    RoundState start[N];
    __m128i w[N][4];
#pragma GCC unroll 4
    for (int s = 0; s < N; ++s) start[s] = state[s];
#pragma GCC unroll 16
    for (int g = 0; g < 16; ++g) {
      const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(&kSha256RoundConstants[4 * g]));
      __m128i wk[N];
#pragma GCC unroll 4
      for (int s = 0; s < N; ++s) wk[s] = _mm_add_epi32(next_words(data[s], g, w[s]), k);
#pragma GCC unroll 4
      for (int s = 0; s < N; ++s) {
        state[s].cdgh = _mm_sha256rnds2_epu32(state[s].cdgh, state[s].abef, wk[s]);
      }
#pragma GCC unroll 4
      for (int s = 0; s < N; ++s) {
        state[s].abef = _mm_sha256rnds2_epu32(state[s].abef, state[s].cdgh, _mm_shuffle_epi32(wk[s], 0x0E));
      }
    }
#pragma GCC unroll 4
    for (int s = 0; s < N; ++s) {
      state[s].abef = _mm_add_epi32(state[s].abef, start[s].abef);
      state[s].cdgh = _mm_add_epi32(state[s].cdgh, start[s].cdgh);
      data[s] += kSha256BlockBytes;
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < N; ++s) {
    store_state(state[s], lanes[s].words);
    lanes[s].data = data[s];
  }
}

bool detect_sha_instructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kShaBit = 1u << 29;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (ebx & kShaBit) == 0) return false;
  return __builtin_cpu_supports("sse4.1");
}

}  // namespace

bool sha256_kernel_available() {
  static const bool available = detect_sha_instructions();
  return available;
}

void sha256_compress(Sha256Lane* lanes, int count, int64_t num_blocks) {
  if (count == kSha256MaxStreams && num_blocks > 1 && sha256_wide_kernel_available()) {
    sha256_compress_wide(lanes, num_blocks & ~int64_t{1});
    num_blocks &= 1;
  }
  if (num_blocks == 0) return;
  switch (count) {
    case 1:
      return compress<1>(lanes, num_blocks);
    case 2:
      return compress<2>(lanes, num_blocks);
    case 3:
      return compress<3>(lanes, num_blocks);
    default:
      return compress<4>(lanes, num_blocks);
  }
}

}  // namespace milepost

#else

namespace milepost {

bool sha256_kernel_available() { return false; }
void sha256_compress(Sha256Lane*, int, int64_t) {}

}  // namespace milepost

#endif
