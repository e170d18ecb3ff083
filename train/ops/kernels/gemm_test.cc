#include "train/ops/kernels/gemm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "train/ops/kernels/pack.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

template <class T>
std::vector<T> random_values(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = from_float<T>(normal(generator));
  return values;
}

// Rows of `width` elements, each made whole units with zeros.
template <class T>
std::vector<T> pad_units(const std::vector<T>& rows, int64_t count, int64_t width) {
  const int64_t padded = num_units<T>(width) * kPerUnit<T>;
  std::vector<T> out(static_cast<size_t>(count * padded));
  for (int64_t i = 0; i < count; ++i) std::copy_n(rows.data() + i * width, width, out.data() + i * padded);
  return out;
}

enum class Pack { kRows, kTransposed };

// a [M, K] b [K, N] + 1 through packing, against sums in double precision.
template <class T>
void check_product(int64_t m, int64_t n, int64_t k, Pack pack) {
  SCOPED_TRACE(std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k));
  const std::vector<T> a = random_values<T>(m * k, 1), b_KN = random_values<T>(k * n, 2);
  const int64_t units = num_units<T>(k), panels = (n + kPanelColumns - 1) / kPanelColumns;
  std::vector<uint32_t> packed(static_cast<size_t>(panels * units * kPanelColumns), 0xffffffffU);
  if (pack == Pack::kRows) {
    pack_rows<T>(b_KN.data(), n, k, n, packed.data());
  } else {
    std::vector<T> b_NK(b_KN.size());
    for (int64_t i = 0; i < k * n; ++i) b_NK[i % n * k + i / n] = b_KN[i];
    pack_transposed(pad_units(b_NK, n, k).data(), units, n, units, packed.data());
  }
  const std::vector<T> rows = pad_units(a, m, k);
  const int64_t c_width = n + 5;
  std::vector<float> c(static_cast<size_t>(m * c_width), 1.0F);
  gemm_block<T>(m, n, units, {rows.data(), units, 1}, {packed.data(), units * kPanelColumns}, c.data(),
                c_width, Sum::kAdd);
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double want = 1;
      for (int64_t i = 0; i < k; ++i) {
        want += static_cast<double>(to_float(a[row * k + i])) * to_float(b_KN[i * n + column]);
      }
      ASSERT_NEAR(c[row * c_width + column], want, 2e-5 * std::sqrt(k + 1)) << row << ", " << column;
    }
    for (int64_t column = n; column < c_width; ++column) ASSERT_EQ(c[row * c_width + column], 1.0F);
  }
}

TEST(Gemm, MultipliesAnySize) {
  for (const int64_t m : {1, 3, 8, 13}) {
    for (const int64_t n : {1, 16, 31, 48, 64, 100}) {
      for (const int64_t k : {1, 2, 17, 64}) {
        for (const Pack pack : {Pack::kRows, Pack::kTransposed}) {
          check_product<float>(m, n, k, pack);
          check_product<BFloat16>(m, n, k, pack);
        }
      }
    }
  }
}

TEST(Gemm, ReplacesWithoutReading) {
  const std::vector<float> a(8, 1.0F), b(16, 2.0F);
  std::vector<float> c(8 * 16, NAN);
  gemm_block<float>(8, 16, 1, {a.data(), 1, 1}, {b.data(), 16}, c.data(), 16, Sum::kReplace);
  for (const float value : c) EXPECT_EQ(value, 2.0F);
}

TEST(Gemm, TakesTheTransposeOfItsLeftSide) {
  const int64_t m = 11, n = 20, k = 30;
  const std::vector<float> a_KM = random_values<float>(k * m, 3), b = random_values<float>(k * n, 4);
  std::vector<float> a_MK(a_KM.size()), packed(static_cast<size_t>(k * 32)), direct(m * n), transposed(m * n);
  for (int64_t i = 0; i < k * m; ++i) a_MK[i % m * k + i / m] = a_KM[i];
  pack_rows<float>(b.data(), n, k, n, packed.data());
  const RightOperand right{packed.data(), k * kPanelColumns};
  gemm_block<float>(m, n, k, {a_MK.data(), k, 1}, right, direct.data(), n, Sum::kReplace);
  gemm_block<float>(m, n, k, {a_KM.data(), 1, m}, right, transposed.data(), n, Sum::kReplace);
  EXPECT_EQ(direct, transposed);
}

TEST(Gemm, PairsOfRowsAreUnits) {
  const std::vector<BFloat16> low = random_values<BFloat16>(48, 5), high = random_values<BFloat16>(48, 6);
  std::vector<uint32_t> out(48);
  interleave(low.data(), high.data(), 48, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], low[i].bits | static_cast<uint32_t>(high[i].bits) << 16);
  }
}

}  // namespace
}  // namespace milepost::train
