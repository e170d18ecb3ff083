// Four streams with the message schedule in 256-bit registers.
//
// The schedule instructions (sha256msg1, sha256msg2) are microcode and take as long as the rounds. The
// schedule does not depend on the state, though, so that of the next two blocks of all four streams is
// computed with ordinary vector instructions, one 32-bit lane for each of the eight blocks, between the
// rounds of the present two blocks:
//
// 1. Read 16 bytes of each block, reverse the bytes of each word, transpose: w[t] holds word t of the eight
// blocks.
// 2. For t >= 16: w[t] = w[t-16] + sigma0(w[t-15]) + w[t-7] + sigma1(w[t-2]), in a window of sixteen
// registers.
// 3. Add the round constants and interleave w[t] with w[t+1]: pairs for one round instruction, stored to a
// buffer.
// 4. In the next turn the rounds load their pairs from there, 8 bytes each.
#include "base/sha256_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace milepost {
namespace {

#define MILEPOST_WIDE __attribute__((target("sha,avx2,avx512f,avx512vl")))
#define MILEPOST_WIDE_INLINE MILEPOST_WIDE __attribute__((always_inline)) inline

constexpr int kStreams = kSha256MaxStreams;
constexpr int kPairs = 32;  // of rounds, in a block

// Schedules of two blocks of four streams. In each 32 bytes: two streams of block 0, then the same of
// block 1.
struct alignas(64) Schedule {
  std::byte pairs[kPairs][2][32];
};

struct Rounds {
  __m128i abef[kStreams], cdgh[kStreams];
};

MILEPOST_WIDE_INLINE __m128i round_pair(const Schedule& schedule, int pair, int stream, int block) {
  const std::byte* at = schedule.pairs[pair][stream / 2] + block * 16 + (stream % 2) * 8;
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
}

MILEPOST_WIDE_INLINE __m256i sigma0(__m256i x) {
  return _mm256_ternarylogic_epi32(_mm256_ror_epi32(x, 7), _mm256_ror_epi32(x, 18), _mm256_srli_epi32(x, 3),
                                   0x96);
}

MILEPOST_WIDE_INLINE __m256i sigma1(__m256i x) {
  return _mm256_ternarylogic_epi32(_mm256_ror_epi32(x, 17), _mm256_ror_epi32(x, 19), _mm256_srli_epi32(x, 10),
                                   0x96);
}

// Words 4k to 4k + 3 of the two blocks at each data[s].
MILEPOST_WIDE_INLINE void read_words(const std::byte* const (&data)[kStreams], int k, __m256i (&w)[16]) {
  const __m256i byte_order =
      _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL));
  __m256i rows[kStreams];
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data[s] + 16 * k));
    const __m128i second =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(data[s] + kSha256BlockBytes + 16 * k));
    rows[s] =
        _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1), byte_order);
  }
  const __m256i low01 = _mm256_unpacklo_epi32(rows[0], rows[1]),
                high01 = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(rows[2], rows[3]),
                high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
  w[4 * k] = _mm256_unpacklo_epi64(low01, low23);
  w[4 * k + 1] = _mm256_unpackhi_epi64(low01, low23);
  w[4 * k + 2] = _mm256_unpacklo_epi64(high01, high23);
  w[4 * k + 3] = _mm256_unpackhi_epi64(high01, high23);
}

MILEPOST_WIDE_INLINE __m256i plus_constant(__m256i words, int t) {
  return _mm256_add_epi32(words,
                          _mm256_set1_epi32(static_cast<int>(kSha256RoundConstants[static_cast<size_t>(t)])));
}

MILEPOST_WIDE_INLINE void write_pair(__m256i even, __m256i odd, int pair, Schedule& out) {
  even = plus_constant(even, 2 * pair);
  odd = plus_constant(odd, 2 * pair + 1);
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.pairs[pair][0]), _mm256_unpacklo_epi32(even, odd));
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.pairs[pair][1]), _mm256_unpackhi_epi32(even, odd));
}

template <bool kRounds>
MILEPOST_WIDE_INLINE void rounds_cdgh(Rounds& state, const Schedule& now, int pair, int stream, int block) {
  if constexpr (kRounds) {
    state.cdgh[stream] =
        _mm_sha256rnds2_epu32(state.cdgh[stream], state.abef[stream], round_pair(now, pair, stream, block));
  }
}

template <bool kRounds>
MILEPOST_WIDE_INLINE void rounds_abef(Rounds& state, const Schedule& now, int pair, int stream, int block) {
  if constexpr (kRounds) {
    state.abef[stream] =
        _mm_sha256rnds2_epu32(state.abef[stream], state.cdgh[stream], round_pair(now, pair, stream, block));
  }
}

// Half a turn: the 64 rounds of block kBlock of the present schedule, and words 32 kBlock to 32 kBlock + 31
// of the next one, two between each four rounds. Spreading them so finely keeps both kinds of execution unit
// busy.
template <bool kRounds, bool kSchedule, int kBlock>
MILEPOST_WIDE_INLINE void half_turn(Rounds& state, const Schedule& now,
                                    const std::byte* const (&data)[kStreams], __m256i (&w)[16],
                                    Schedule& next) {
  const Rounds start = state;
#pragma GCC unroll 16
  for (int g = 0; g < 16; ++g) {
    const int t = 32 * kBlock + 2 * g;
    const bool extend = kSchedule && t >= 16;
    __m256i even{}, odd{};
    if (kSchedule && t < 16 && t % 4 == 0) read_words(data, t / 4, w);
    rounds_cdgh<kRounds>(state, now, 2 * g, 0, kBlock);
    if (extend) even = sigma0(w[(t + 1) & 15]);
    rounds_cdgh<kRounds>(state, now, 2 * g, 1, kBlock);
    if (extend) {
      even = _mm256_add_epi32(even, _mm256_add_epi32(w[t & 15], w[(t + 9) & 15]));
      odd = _mm256_add_epi32(w[(t + 1) & 15], w[(t + 10) & 15]);
    }
    rounds_cdgh<kRounds>(state, now, 2 * g, 2, kBlock);
    if (extend) w[t & 15] = _mm256_add_epi32(even, sigma1(w[(t + 14) & 15]));
    rounds_cdgh<kRounds>(state, now, 2 * g, 3, kBlock);
    rounds_abef<kRounds>(state, now, 2 * g + 1, 0, kBlock);
    if (extend) odd = _mm256_add_epi32(odd, sigma0(w[(t + 2) & 15]));
    rounds_abef<kRounds>(state, now, 2 * g + 1, 1, kBlock);
    if (extend) w[(t + 1) & 15] = _mm256_add_epi32(odd, sigma1(w[(t + 15) & 15]));
    rounds_abef<kRounds>(state, now, 2 * g + 1, 2, kBlock);
    rounds_abef<kRounds>(state, now, 2 * g + 1, 3, kBlock);
    if (kSchedule) write_pair(w[t & 15], w[(t + 1) & 15], t / 2, next);
  }
  if constexpr (!kRounds) return;
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) {
    state.abef[s] = _mm_add_epi32(state.abef[s], start.abef[s]);
    state.cdgh[s] = _mm_add_epi32(state.cdgh[s], start.cdgh[s]);
  }
}

template <bool kRounds, bool kSchedule>
MILEPOST_WIDE_INLINE void turn(Rounds& state, const Schedule& now, const std::byte* const (&data)[kStreams],
                               Schedule& next) {
  __m256i w[16];
  half_turn<kRounds, kSchedule, 0>(state, now, data, w, next);
  half_turn<kRounds, kSchedule, 1>(state, now, data, w, next);
}

}  // namespace

bool sha256_wide_kernel_available() {
  static const bool available =
      sha256_kernel_available() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  return available;
}

MILEPOST_WIDE void sha256_compress_wide(Sha256Lane* lanes, int64_t num_blocks) {
  Rounds state;
  const std::byte* data[kStreams];
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) {
    const __m128i* words = reinterpret_cast<const __m128i*>(lanes[s].words);
    const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
    const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
    state.abef[s] = _mm_alignr_epi8(badc, hgfe, 8);
    state.cdgh[s] = _mm_blend_epi16(hgfe, badc, 0xF0);
    data[s] = lanes[s].data;
  }

  Schedule schedules[2];
  turn<false, true>(state, schedules[1], data, schedules[0]);
  int current = 0;
  for (int64_t left = num_blocks - 2; left > 0; left -= 2) {
    for (const std::byte*& next : data) next += 2 * kSha256BlockBytes;
    turn<true, true>(state, schedules[current], data, schedules[1 - current]);
    current = 1 - current;
  }
  turn<true, false>(state, schedules[current], data, schedules[1 - current]);

#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) {
    __m128i* words = reinterpret_cast<__m128i*>(lanes[s].words);
    const __m128i feba = _mm_shuffle_epi32(state.abef[s], 0x1B),
                  dchg = _mm_shuffle_epi32(state.cdgh[s], 0xB1);
    _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
    lanes[s].data += num_blocks * kSha256BlockBytes;
  }
}

}  // namespace milepost

#else

namespace milepost {

bool sha256_wide_kernel_available() { return false; }
void sha256_compress_wide(Sha256Lane*, int64_t) {}

}  // namespace milepost

#endif
