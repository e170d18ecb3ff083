#include "train/ops/kernels/pack.h"

#include <algorithm>
#include <cstring>

#include "train/ops/kernels/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define MILEPOST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#endif

namespace milepost::train {
namespace {

#if defined(__x86_64__)

// 16 x 16 units, transposed in four rounds: pairs of rows are merged by ever wider pieces.
MILEPOST_AVX512 void transpose_16x16(const uint32_t* in, int64_t row_stride, uint32_t* out) {
  __m512i rows[16], mixed[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(in + i * row_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    mixed[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    mixed[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(mixed[i], mixed[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(mixed[i], mixed[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(mixed[i + 1], mixed[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(mixed[i + 1], mixed[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    mixed[i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
    mixed[4 + i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xdd);
    mixed[8 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
    mixed[12 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_si512(out + i * 16, _mm512_shuffle_i32x4(mixed[i], mixed[8 + i], 0x88));
    _mm512_storeu_si512(out + (4 + i) * 16, _mm512_shuffle_i32x4(mixed[4 + i], mixed[12 + i], 0x88));
    _mm512_storeu_si512(out + (8 + i) * 16, _mm512_shuffle_i32x4(mixed[i], mixed[8 + i], 0xdd));
    _mm512_storeu_si512(out + (12 + i) * 16, _mm512_shuffle_i32x4(mixed[4 + i], mixed[12 + i], 0xdd));
  }
}

MILEPOST_AVX512 void interleave_avx512(const BFloat16* low, const BFloat16* high, int64_t n, uint32_t* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __m256i low_bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + i));
    const __m256i high_bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high + i));
    _mm512_storeu_si512(out + i, _mm512_or_si512(_mm512_cvtepu16_epi32(low_bits),
                                                 _mm512_slli_epi32(_mm512_cvtepu16_epi32(high_bits), 16)));
  }
}

#endif

void transpose_plain(const uint32_t* in, int64_t row_stride, int64_t rows, int64_t k_units, uint32_t* out) {
  for (int64_t k = 0; k < k_units; ++k) {
    for (int64_t i = 0; i < rows; ++i) out[k * kPanelColumns + i] = in[i * row_stride + k];
    for (int64_t i = rows; i < kPanelColumns; ++i) out[k * kPanelColumns + i] = 0;
  }
}

void interleave_plain(const BFloat16* low, const BFloat16* high, int64_t n, uint32_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = low[i].bits | static_cast<uint32_t>(high[i].bits) << 16;
}

// One panel of up to 16 columns.
void pack_panel(const float* rows, int64_t row_stride, int64_t k, int64_t columns, void* panel) {
  auto* out = static_cast<float*>(panel);
  if (columns == kPanelColumns) {
    for (int64_t i = 0; i < k; ++i) {
      std::memcpy(out + i * kPanelColumns, rows + i * row_stride, kPanelColumns * sizeof(float));
    }
    return;
  }
  for (int64_t i = 0; i < k; ++i) {
    std::copy_n(rows + i * row_stride, columns, out + i * kPanelColumns);
    std::fill_n(out + i * kPanelColumns + columns, kPanelColumns - columns, 0.0F);
  }
}
void pack_panel(const BFloat16* rows, int64_t row_stride, int64_t k, int64_t columns, void* panel) {
  constexpr BFloat16 kZeros[kPanelColumns] = {};
  auto* out = static_cast<uint32_t*>(panel);
  for (int64_t i = 0; i < k; i += 2, out += kPanelColumns) {
    const BFloat16* low = rows + i * row_stride;
    const BFloat16* high = i + 1 < k ? low + row_stride : kZeros;
    if (columns == kPanelColumns) {
      interleave(low, high, columns, out);
      continue;
    }
    interleave_plain(low, high, columns, out);
    std::fill_n(out + columns, kPanelColumns - columns, 0U);
  }
}

}  // namespace

void pack_transposed(const void* rows_NK, int64_t row_stride_units, int64_t n, int64_t k_units,
                     void* panels) {
  const auto* in = static_cast<const uint32_t*>(rows_NK);
  auto* out = static_cast<uint32_t*>(panels);
  for (int64_t i = 0; i < n; i += kPanelColumns, in += kPanelColumns * row_stride_units) {
    const int64_t columns = std::min(kPanelColumns, n - i);
    int64_t k = 0;
#if defined(__x86_64__)
    if (columns == kPanelColumns && has_avx512()) {
      for (; k + 16 <= k_units; k += 16) transpose_16x16(in + k, row_stride_units, out + k * kPanelColumns);
    }
#endif
    transpose_plain(in + k, row_stride_units, columns, k_units - k, out + k * kPanelColumns);
    out += k_units * kPanelColumns;
  }
}

template <class T>
void pack_rows(const T* rows_KN, int64_t row_stride, int64_t k, int64_t n, void* panels) {
  auto* out = static_cast<uint32_t*>(panels);
  for (int64_t i = 0; i < n; i += kPanelColumns, out += num_units<T>(k) * kPanelColumns) {
    pack_panel(rows_KN + i, row_stride, k, std::min(kPanelColumns, n - i), out);
  }
}
template void pack_rows<float>(const float*, int64_t, int64_t, int64_t, void*);
template void pack_rows<BFloat16>(const BFloat16*, int64_t, int64_t, int64_t, void*);

void interleave(const BFloat16* low, const BFloat16* high, int64_t n, uint32_t* out) {
#if defined(__x86_64__)
  if (has_avx512()) return interleave_avx512(low, high, n, out);
#endif
  interleave_plain(low, high, n, out);
}

}  // namespace milepost::train
