#include "train/ops/kernels/gemm.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "train/ops/kernels/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define MILEPOST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define MILEPOST_AVX2 __attribute__((target("avx2,fma")))
#define MILEPOST_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#else
#define MILEPOST_AVX2
#endif

namespace milepost::train {
namespace {

// One call covers `rows` of A (up to 8) and all columns; the tile below it up to three panels, so that 24
// accumulators, three columns' vectors and one of A fit the 32 registers.
constexpr int64_t kTileRows = 8;

struct Tile {
  const float* a;
  int64_t row_stride, k_stride;
  const float* b;
  int64_t panel_stride;
  int64_t k;
  float* c;
  int64_t c_row_stride;
  int64_t last_columns;  // of the last panel
  Sum sum;
};
using TileFunction = void (*)(const Tile&);

#if defined(__x86_64__)

template <int kRows, int kPanels>
MILEPOST_AVX512 __attribute__((always_inline)) inline void store_tile(const Tile& t,
                                                                      const __m512 (&sums)[kRows][kPanels]) {
  const auto last = static_cast<__mmask16>((1U << t.last_columns) - 1);
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 3
    for (int panel = 0; panel < kPanels; ++panel) {
      float* c = t.c + row * t.c_row_stride + panel * kPanelColumns;
      const __mmask16 mask = panel + 1 < kPanels ? static_cast<__mmask16>(0xffff) : last;
      __m512 sum = sums[row][panel];
      if (t.sum == Sum::kAdd) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, c));
      _mm512_mask_storeu_ps(c, mask, sum);
    }
  }
}

template <int kRows, int kPanels>
MILEPOST_AVX512 void tile_f32(const Tile& t) {
  __m512 sums[kRows][kPanels];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 3
    for (int panel = 0; panel < kPanels; ++panel) sums[row][panel] = _mm512_setzero_ps();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int64_t k = 0; k < t.k; ++k, a += t.k_stride, b += kPanelColumns) {
    __m512 columns[kPanels];
#pragma GCC unroll 3
    for (int panel = 0; panel < kPanels; ++panel)
      columns[panel] = _mm512_loadu_ps(b + panel * t.panel_stride);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const __m512 left = _mm512_set1_ps(a[row * t.row_stride]);
#pragma GCC unroll 3
      for (int panel = 0; panel < kPanels; ++panel) {
        sums[row][panel] = _mm512_fmadd_ps(left, columns[panel], sums[row][panel]);
      }
    }
  }
  store_tile(t, sums);
}

template <int kRows, int kPanels>
MILEPOST_AVX512_BF16 void tile_bf16(const Tile& t) {
  __m512 sums[kRows][kPanels];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 3
    for (int panel = 0; panel < kPanels; ++panel) sums[row][panel] = _mm512_setzero_ps();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int64_t k = 0; k < t.k; ++k, a += t.k_stride, b += kPanelColumns) {
    __m512 columns[kPanels];
#pragma GCC unroll 3
    for (int panel = 0; panel < kPanels; ++panel)
      columns[panel] = _mm512_loadu_ps(b + panel * t.panel_stride);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const __m512 left = _mm512_set1_ps(a[row * t.row_stride]);
#pragma GCC unroll 3
      for (int panel = 0; panel < kPanels; ++panel) {
        sums[row][panel] = _mm512_dpbf16_ps(sums[row][panel], (__m512bh)left, (__m512bh)columns[panel]);
      }
    }
  }
  store_tile(t, sums);
}

constexpr TileFunction kTilesF32[kTileRows][3] = {
    {tile_f32<1, 1>, tile_f32<1, 2>, tile_f32<1, 3>}, {tile_f32<2, 1>, tile_f32<2, 2>, tile_f32<2, 3>},
    {tile_f32<3, 1>, tile_f32<3, 2>, tile_f32<3, 3>}, {tile_f32<4, 1>, tile_f32<4, 2>, tile_f32<4, 3>},
    {tile_f32<5, 1>, tile_f32<5, 2>, tile_f32<5, 3>}, {tile_f32<6, 1>, tile_f32<6, 2>, tile_f32<6, 3>},
    {tile_f32<7, 1>, tile_f32<7, 2>, tile_f32<7, 3>}, {tile_f32<8, 1>, tile_f32<8, 2>, tile_f32<8, 3>}};
constexpr TileFunction kTilesBf16[kTileRows][3] = {
    {tile_bf16<1, 1>, tile_bf16<1, 2>, tile_bf16<1, 3>}, {tile_bf16<2, 1>, tile_bf16<2, 2>, tile_bf16<2, 3>},
    {tile_bf16<3, 1>, tile_bf16<3, 2>, tile_bf16<3, 3>}, {tile_bf16<4, 1>, tile_bf16<4, 2>, tile_bf16<4, 3>},
    {tile_bf16<5, 1>, tile_bf16<5, 2>, tile_bf16<5, 3>}, {tile_bf16<6, 1>, tile_bf16<6, 2>, tile_bf16<6, 3>},
    {tile_bf16<7, 1>, tile_bf16<7, 2>, tile_bf16<7, 3>}, {tile_bf16<8, 1>, tile_bf16<8, 2>, tile_bf16<8, 3>}};

// Five panels as 3 + 2, four as 2 + 2: a lone panel would leave the multipliers waiting.
int64_t next_panels(int64_t left) { return left == 4 ? 2 : std::min<int64_t>(left, 3); }

void run_tiles(const TileFunction (&tiles)[kTileRows][3], int64_t m, int64_t n, int64_t k, LeftOperand a,
               RightOperand b, float* c, int64_t c_row_stride, Sum sum) {
  const int64_t num_panels = (n + kPanelColumns - 1) / kPanelColumns;
  const auto* a_data = static_cast<const float*>(a.data);
  const auto* b_data = static_cast<const float*>(b.data);
  for (int64_t row = 0; row < m; row += kTileRows) {
    const int64_t rows = std::min(kTileRows, m - row);
    for (int64_t panel = 0; panel < num_panels;) {
      const int64_t panels = next_panels(num_panels - panel);
      const int64_t last_column = std::min(n, (panel + panels) * kPanelColumns);
      tiles[rows - 1][panels - 1]({a_data + row * a.row_stride, a.row_stride, a.k_stride,
                                   b_data + panel * b.panel_stride, b.panel_stride, k,
                                   c + row * c_row_stride + panel * kPanelColumns, c_row_stride,
                                   last_column - (panel + panels - 1) * kPanelColumns, sum});
      panel += panels;
    }
  }
}

#endif

inline float low_part(uint32_t unit) { return std::bit_cast<float>(unit << 16); }
inline float high_part(uint32_t unit) { return std::bit_cast<float>(unit & 0xffff0000U); }

// Up to four rows by one panel, for the compiler to make vectors of. kFused where a fused multiply-add is one
// instruction: elsewhere it would be a call.
template <class T, int kRows, bool kFused>
__attribute__((always_inline)) inline void plain_tile(const Tile& t) {
  const auto add_product = [](float sum, float x, float y) __attribute__((always_inline)) {
    if constexpr (kFused) {
      return __builtin_fmaf(x, y, sum);
    } else {
      return sum + x * y;
    }
  };
  float sums[kRows][kPanelColumns] = {};
  for (int64_t k = 0; k < t.k; ++k) {
    const float* b = t.b + k * kPanelColumns;
    for (int row = 0; row < kRows; ++row) {
      const float left = t.a[row * t.row_stride + k * t.k_stride];
      if constexpr (sizeof(T) == sizeof(float)) {
        for (int i = 0; i < kPanelColumns; ++i) sums[row][i] = add_product(sums[row][i], left, b[i]);
      } else {
        const auto pair = std::bit_cast<uint32_t>(left);
        const float low = low_part(pair), high = high_part(pair);
        for (int i = 0; i < kPanelColumns; ++i) {
          const auto column = std::bit_cast<uint32_t>(b[i]);
          sums[row][i] =
              add_product(add_product(sums[row][i], low, low_part(column)), high, high_part(column));
        }
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    float* c = t.c + row * t.c_row_stride;
    for (int64_t i = 0; i < t.last_columns; ++i) {
      c[i] = t.sum == Sum::kAdd ? c[i] + sums[row][i] : sums[row][i];
    }
  }
}

template <class T, int kRows>
void tile_plain(const Tile& t) {
  plain_tile<T, kRows, false>(t);
}
template <class T, int kRows>
MILEPOST_AVX2 void tile_avx2(const Tile& t) {
  plain_tile<T, kRows, true>(t);
}

constexpr int64_t kPlainRows = 4;
template <class T>
constexpr TileFunction kTilesPlain[kPlainRows] = {tile_plain<T, 1>, tile_plain<T, 2>, tile_plain<T, 3>,
                                                  tile_plain<T, 4>};
template <class T>
constexpr TileFunction kTilesAvx2[kPlainRows] = {tile_avx2<T, 1>, tile_avx2<T, 2>, tile_avx2<T, 3>,
                                                 tile_avx2<T, 4>};

void run_plain_tiles(const TileFunction (&tiles)[kPlainRows], int64_t m, int64_t n, int64_t k, LeftOperand a,
                     RightOperand b, float* c, int64_t c_row_stride, Sum sum) {
  const auto* a_data = static_cast<const float*>(a.data);
  const auto* b_data = static_cast<const float*>(b.data);
  for (int64_t row = 0; row < m; row += kPlainRows) {
    for (int64_t column = 0; column < n; column += kPanelColumns) {
      tiles[std::min(kPlainRows, m - row) - 1]({a_data + row * a.row_stride, a.row_stride, a.k_stride,
                                                b_data + column / kPanelColumns * b.panel_stride,
                                                b.panel_stride, k, c + row * c_row_stride + column,
                                                c_row_stride, std::min(kPanelColumns, n - column), sum});
    }
  }
}

}  // namespace

template <class T>
void gemm_block(int64_t m, int64_t n, int64_t k, LeftOperand a, RightOperand b, float* c,
                int64_t c_row_stride, Sum sum) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>) {
    if (has_avx512()) return run_tiles(kTilesF32, m, n, k, a, b, c, c_row_stride, sum);
  } else {
    if (has_avx512_bf16()) return run_tiles(kTilesBf16, m, n, k, a, b, c, c_row_stride, sum);
  }
#endif
  run_plain_tiles(has_avx2() ? kTilesAvx2<T> : kTilesPlain<T>, m, n, k, a, b, c, c_row_stride, sum);
}
template void gemm_block<float>(int64_t, int64_t, int64_t, LeftOperand, RightOperand, float*, int64_t, Sum);
template void gemm_block<BFloat16>(int64_t, int64_t, int64_t, LeftOperand, RightOperand, float*, int64_t,
                                   Sum);

}  // namespace milepost::train
