#include <gtest/gtest.h>

#include <bit>
#include <complex>
#include <cstring>
#include <vector>

#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

template <typename T>
MutableBytes bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST(SwapBytes, ReversesEachElement) {
  std::vector<uint32_t> words{0x01020304, 0xa0b0c0d0};
  swap_bytes(bytes_of(words), DType::kInt32);
  EXPECT_EQ(words, (std::vector<uint32_t>{0x04030201, 0xd0c0b0a0}));
}

TEST(SwapBytes, ReversesTheHalvesOfComplexNumbersEach) {
  std::vector<uint32_t> halves{0x01020304, 0xa0b0c0d0};
  swap_bytes(bytes_of(halves), DType::kComplex64);
  EXPECT_EQ(halves, (std::vector<uint32_t>{0x04030201, 0xd0c0b0a0}));
  std::vector<uint16_t> small{0x0102, 0x0304};
  swap_bytes(bytes_of(small), DType::kComplex32);
  EXPECT_EQ(small, (std::vector<uint16_t>{0x0201, 0x0403}));
}

TEST(SwapBytes, LeavesSingleBytesAlone) {
  for (DType dtype :
       {DType::kUInt8, DType::kBool, DType::kFloat8E5M2, DType::kFloat4E2M1FNx2, DType::kFloat6E2M3}) {
    std::vector<uint8_t> bytes{1, 2, 3};
    swap_bytes(bytes_of(bytes), dtype);
    EXPECT_EQ(bytes, (std::vector<uint8_t>{1, 2, 3}));
  }
}

TEST(SwapBytes, AcceptsNothing) { swap_bytes({}, DType::kFloat64); }

TEST(ApplyNeg, FlipsSignsOfFloats) {
  std::vector<float> values{1.5f, -0.0f, -3.0f};
  apply_neg(bytes_of(values), DType::kFloat32);
  EXPECT_EQ(values[0], -1.5f);
  EXPECT_FALSE(std::signbit(values[1]));
  EXPECT_EQ(values[2], 3.0f);
  std::vector<uint16_t> halves{0x3c00, 0x8000};
  apply_neg(bytes_of(halves), DType::kFloat16);
  EXPECT_EQ(halves, (std::vector<uint16_t>{0xbc00, 0x0000}));
}

TEST(ApplyNeg, NegatesBothHalvesOfComplexNumbers) {
  std::vector<std::complex<double>> values{{1, -2}};
  apply_neg(bytes_of(values), DType::kComplex128);
  EXPECT_EQ(values[0], std::complex<double>(-1, 2));
}

TEST(ApplyNeg, NegatesIntegersAndWraps) {
  std::vector<int8_t> small{1, -5, -128};
  apply_neg(bytes_of(small), DType::kInt8);
  EXPECT_EQ(small, (std::vector<int8_t>{-1, 5, -128}));
  std::vector<int64_t> large{1LL << 40, -7};
  apply_neg(bytes_of(large), DType::kInt64);
  EXPECT_EQ(large, (std::vector<int64_t>{-(1LL << 40), 7}));
}

TEST(ApplyNeg, NeverMakesNanOutOfZero) {
  std::vector<uint8_t> codes{0x00, 0x80, 0x40, 0xc0};
  apply_neg(bytes_of(codes), DType::kFloat8E4M3FNUZ);
  EXPECT_EQ(codes, (std::vector<uint8_t>{0x00, 0x80, 0xc0, 0x40}));
}

TEST(ApplyNeg, LeavesTypesWithoutASignAlone) {
  std::vector<uint8_t> codes{0, 1, 127, 255};
  for (DType dtype : {DType::kBool, DType::kFloat8E8M0FNU}) {
    apply_neg(bytes_of(codes), dtype);
    EXPECT_EQ(codes, (std::vector<uint8_t>{0, 1, 127, 255}));
  }
}

TEST(ApplyConj, NegatesImaginaryPartsOnly) {
  std::vector<std::complex<float>> values{{1, 2}, {-3, -4}};
  apply_conj(bytes_of(values), DType::kComplex64);
  EXPECT_EQ(values, (std::vector<std::complex<float>>{{1, -2}, {-3, 4}}));
  std::vector<float> real{1, -2};
  apply_conj(bytes_of(real), DType::kFloat32);
  EXPECT_EQ(real, (std::vector<float>{1, -2}));
}

}  // namespace
}  // namespace milepost
