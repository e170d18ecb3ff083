#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/tensor/copy.h"
#include "tensor/cast_kernels.h"

namespace milepost {
namespace {

// In the order of tools/make_cast_golden.py.
constexpr std::array kFloats = {DType::kFloat32,        DType::kFloat64,        DType::kFloat16,
                                DType::kBFloat16,       DType::kFloat8E4M3FN,   DType::kFloat8E5M2,
                                DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ, DType::kFloat8E8M0FNU};

std::string golden_path(const std::string& name) { return MILEPOST_TEST_DATA "/cast/" + name; }

ByteVector read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }

uint64_t code_at(Bytes elements, size_t index, DType dtype) {
  uint64_t code = 0;
  std::memcpy(&code, elements.data() + index * size_of(dtype), size_of(dtype));
  return code;
}

bool is_nan(uint64_t code, DType dtype) {
  return std::isnan(element_as_double(reinterpret_cast<const std::byte*>(&code), dtype));
}

uint64_t nan_code(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x7fc00000;
    case DType::kFloat64:
      return 0x7ff8000000000000;
    case DType::kFloat16:
      return 0x7e00;
    case DType::kBFloat16:
      return 0x7fc0;
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
      return 0x7f;
    case DType::kFloat8E8M0FNU:
      return 0xff;
    default:
      return 0x80;
  }
}

ByteVector all_codes(DType dtype) {
  const size_t size = size_of(dtype), count = size_t{1} << (8 * size);
  ByteVector codes(count * size);
  for (size_t code = 0; code < count; ++code) std::memcpy(codes.data() + code * size, &code, size);
  return codes;
}

ByteVector cast_all(Bytes from_bytes, DType from, DType to) {
  const size_t count = from_bytes.size() / size_of(from);
  ByteVector result(count * size_of(to));
  cast(result.data(), to, from_bytes.data(), from, static_cast<int64_t>(count));
  return result;
}

// With every NaN written as the golden files do.
ByteVector cast_all_to_one_nan(Bytes from_bytes, DType from, DType to) {
  ByteVector result = cast_all(from_bytes, from, to);
  const uint64_t nan = nan_code(to);
  for (size_t i = 0; i < result.size() / size_of(to); ++i) {
    if (is_nan(code_at(result, i, to), to)) std::memcpy(result.data() + i * size_of(to), &nan, size_of(to));
  }
  return result;
}

class CastFrom : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, CastFrom,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kFloat8E4M3FN,
                                         DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ,
                                         DType::kFloat8E8M0FNU),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST_P(CastFrom, EqualsTorchForEveryGoldenCase) {
  const DType from = GetParam();
  const ByteVector golden = read_file(golden_path(std::string(dtype_name(from)) + ".bin"));
  size_t bytes_a_case = 0;
  for (DType dtype : kFloats) bytes_a_case += size_of(dtype);
  ASSERT_EQ(golden.size() % bytes_a_case, 0u);
  const size_t count = golden.size() / bytes_a_case;
  ASSERT_GE(count, 256u);
  const Bytes inputs = Bytes(golden).first(count * size_of(from));
  size_t at = inputs.size();
  for (DType to : kFloats) {
    if (to == from) continue;
    const Bytes expected = Bytes(golden).subspan(at, count * size_of(to));
    at += expected.size();
    const ByteVector actual = cast_all_to_one_nan(inputs, from, to);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(code_at(actual, i, to), code_at(expected, i, to))
          << std::hex << dtype_name(from) << " 0x" << code_at(inputs, i, from) << " to " << dtype_name(to);
    }
  }
}

TEST(Cast, EqualsTorchForEverySixteenBitCode) {
  std::ifstream file(golden_path("checksums.txt"));
  std::string from_name, to_name, checksum;
  int pairs = 0;
  for (; file >> from_name >> to_name >> checksum; ++pairs) {
    const DType from = dtype_from_name(from_name).value(), to = dtype_from_name(to_name).value();
    const ByteVector actual = cast_all_to_one_nan(all_codes(from), from, to);
    EXPECT_EQ(crc32(0, actual), std::stoul(checksum, nullptr, 16)) << from_name << " to " << to_name;
  }
  EXPECT_EQ(pairs, 16);
}

TEST(Cast, KeepsNanPayloadsThatFit) {
  const std::vector<uint32_t> floats{0x7fc10000, 0xffc20000, 0x7f800001, 0x7f810000};
  const ByteVector narrow = cast_all(std::as_bytes(std::span(floats)), DType::kFloat32, DType::kBFloat16);
  EXPECT_EQ(code_at(narrow, 0, DType::kBFloat16), 0x7fc1u);
  EXPECT_EQ(code_at(narrow, 1, DType::kBFloat16), 0xffc2u);
  EXPECT_EQ(code_at(narrow, 2, DType::kBFloat16), 0x7fc0u) << "never becomes infinity";
  EXPECT_EQ(code_at(narrow, 3, DType::kBFloat16), 0x7fc1u) << "made quiet";
}

TEST(Cast, ConvertsAnyCountAtAnyAlignment) {
  std::mt19937_64 random(1);
  ByteVector source(2000), whole(2000), part(2000);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  for (DType from : kFloats) {
    for (DType to : kFloats) {
      for (int64_t count : {0, 1, 7, 8, 63, 64, 65, 130, 200}) {
        cast(whole.data(), to, source.data() + 1, from, count);
        std::ranges::fill(part, std::byte{0x5a});
        for (int64_t i = 0; i < count; ++i) {
          cast(part.data() + 3 + i * dtype_size(to), to, source.data() + 1 + i * dtype_size(from), from, 1);
        }
        const auto bytes = static_cast<size_t>(count * dtype_size(to));
        ASSERT_EQ(std::memcmp(whole.data(), part.data() + 3, bytes), 0)
            << dtype_name(from) << " " << dtype_name(to);
        ASSERT_EQ(part[3 + bytes], std::byte{0x5a}) << "wrote beyond the end";
      }
    }
  }
}

TEST(Cast, CopiesElementsOfEveryTypeToItself) {
  std::mt19937_64 random(2);
  ByteVector source(16 * 8);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto bytes = static_cast<size_t>(dtype_bytes(dtype, 8).value());
    ByteVector copy(source.size());
    cast(copy.data(), dtype, source.data(), dtype, 8);
    EXPECT_EQ(std::memcmp(copy.data(), source.data(), bytes), 0);
    EXPECT_EQ(std::count(copy.begin() + static_cast<std::ptrdiff_t>(bytes), copy.end(), std::byte{0}),
              static_cast<std::ptrdiff_t>(copy.size() - bytes));
  }
}

TEST(CastKernels, GiveTheSameBitsOnEveryProcessor) {
  std::mt19937_64 random(3);
  std::vector<uint32_t> floats(1 << 16);
  for (uint32_t& bits : floats) bits = static_cast<uint32_t>(random());
  for (size_t i = 0; i < 256; ++i) {
    floats[i] = static_cast<uint32_t>(i << 23 | (i % 3 == 0 ? 0x00400000 : random() % 8));
    floats[256 + i] = 0x7f800000 | static_cast<uint32_t>(random());
  }
  const auto count = static_cast<int64_t>(floats.size());
  const auto* const source = reinterpret_cast<const std::byte*>(floats.data());
  for (DType dtype : kFloats) {
    if (dtype == DType::kFloat64) continue;
    const CastKernels portable = cast_kernels(dtype, CpuLevel::kPortable);
    ByteVector narrow(floats.size() * size_of(dtype)), wide;
    portable.from_float32(narrow.data(), source, count);
    const ByteVector codes = size_of(dtype) < 4 ? all_codes(dtype) : narrow;
    const auto num_codes = static_cast<int64_t>(codes.size()) / dtype_size(dtype);
    wide.resize(static_cast<size_t>(num_codes) * sizeof(float));
    portable.to_float32(wide.data(), codes.data(), num_codes);
    for (CpuLevel level : {CpuLevel::kAvx2, CpuLevel::kAvx512}) {
      if (level > cpu_level()) continue;
      const CastKernels kernels = cast_kernels(dtype, level);
      ByteVector vector_narrow(narrow.size()), vector_wide(wide.size());
      kernels.from_float32(vector_narrow.data(), source, count);
      kernels.to_float32(vector_wide.data(), codes.data(), num_codes);
      ASSERT_EQ(vector_narrow, narrow) << dtype_name(dtype);
      ASSERT_EQ(vector_wide, wide) << dtype_name(dtype);
    }
  }
}

TEST(CastIsSupported, AmongRealFloatsAndForEqualTypesOnly) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto a = static_cast<DType>(i);
    for (int j = 0; j < kNumDTypes; ++j) {
      const auto b = static_cast<DType>(j);
      const bool floats = std::ranges::count(kFloats, a) == 1 && std::ranges::count(kFloats, b) == 1;
      EXPECT_EQ(cast_is_supported(a, b), floats || a == b) << dtype_name(a) << " " << dtype_name(b);
    }
  }
}

TEST(CastIsLossless, SaysWhetherEveryCodeSurvivesTheWayThereAndBack) {
  for (DType from : kFloats) {
    if (size_of(from) > 2) continue;
    const ByteVector codes = all_codes(from);
    for (DType to : kFloats) {
      const ByteVector there = cast_all(codes, from, to);
      bool survives = true;
      for (size_t i = 0; i < codes.size() / size_of(from) && survives; ++i) {
        const double before = element_as_double(codes.data() + i * size_of(from), from);
        const double after = element_as_double(there.data() + i * size_of(to), to);
        survives = std::isnan(before) ? std::isnan(after) : before == after;
      }
      EXPECT_EQ(cast_is_lossless(from, to), survives) << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(CastIsLossless, HoldsForWiderTypesOnly) {
  EXPECT_TRUE(cast_is_lossless(DType::kFloat32, DType::kFloat64));
  EXPECT_FALSE(cast_is_lossless(DType::kFloat64, DType::kFloat32));
  EXPECT_FALSE(cast_is_lossless(DType::kFloat32, DType::kBFloat16));
  EXPECT_TRUE(cast_is_lossless(DType::kComplex64, DType::kComplex128));
  EXPECT_FALSE(cast_is_lossless(DType::kComplex64, DType::kFloat64));
  EXPECT_TRUE(cast_is_lossless(DType::kInt8, DType::kInt16));
  EXPECT_TRUE(cast_is_lossless(DType::kUInt8, DType::kInt16));
  EXPECT_FALSE(cast_is_lossless(DType::kUInt8, DType::kInt8));
  EXPECT_FALSE(cast_is_lossless(DType::kInt8, DType::kUInt64));
  EXPECT_TRUE(cast_is_lossless(DType::kInt32, DType::kFloat64));
  EXPECT_FALSE(cast_is_lossless(DType::kInt64, DType::kFloat64));
  EXPECT_FALSE(cast_is_lossless(DType::kFloat16, DType::kInt64));
  EXPECT_TRUE(cast_is_lossless(DType::kBool, DType::kUInt8));
}

TEST(CastIsLossless, HoldsForEveryTypeToItself) {
  for (int i = 0; i < kNumDTypes; ++i) {
    EXPECT_TRUE(cast_is_lossless(static_cast<DType>(i), static_cast<DType>(i)));
  }
  EXPECT_FALSE(cast_is_lossless(DType::kFloat4E2M1FNx2, DType::kFloat32));
}

template <typename T>
double as_double(T value, DType dtype) {
  return element_as_double(reinterpret_cast<const std::byte*>(&value), dtype);
}

TEST(ElementAsDouble, ReadsEveryType) {
  EXPECT_EQ(as_double(1.5f, DType::kFloat32), 1.5);
  EXPECT_EQ(as_double(-0.1, DType::kFloat64), -0.1);
  EXPECT_EQ(as_double<uint16_t>(0x3e00, DType::kFloat16), 1.5);
  EXPECT_EQ(as_double<uint16_t>(0xbfc0, DType::kBFloat16), -1.5);
  EXPECT_EQ(as_double<uint8_t>(0x7e, DType::kFloat8E4M3FN), 448);
  EXPECT_EQ(as_double<uint8_t>(0x7b, DType::kFloat8E5M2), 57344);
  EXPECT_EQ(as_double<uint8_t>(0x7f, DType::kFloat8E4M3FNUZ), 240);
  EXPECT_EQ(as_double<uint8_t>(0x7f, DType::kFloat8E5M2FNUZ), 57344);
  EXPECT_EQ(as_double<uint8_t>(0x01, DType::kFloat8E5M2FNUZ), 0x1p-17);
  EXPECT_EQ(as_double<uint8_t>(128, DType::kFloat8E8M0FNU), 2);
  EXPECT_EQ(as_double<int8_t>(-3, DType::kInt8), -3);
  EXPECT_EQ(as_double<int16_t>(-300, DType::kInt16), -300);
  EXPECT_EQ(as_double<int32_t>(-70000, DType::kInt32), -70000);
  EXPECT_EQ(as_double<int64_t>(-(int64_t{1} << 40), DType::kInt64), -0x1p40);
  EXPECT_EQ(as_double<uint8_t>(200, DType::kUInt8), 200);
  EXPECT_EQ(as_double<uint16_t>(60000, DType::kUInt16), 60000);
  EXPECT_EQ(as_double<uint32_t>(4000000000, DType::kUInt32), 4e9);
  EXPECT_EQ(as_double(std::numeric_limits<uint64_t>::max(), DType::kUInt64), 0x1p64);
  EXPECT_EQ(as_double<uint8_t>(1, DType::kBool), 1);
  EXPECT_EQ(as_double<uint8_t>(2, DType::kBool), 1) << "any byte but 0";
}

TEST(ElementAsDouble, TakesTheRealPartOfComplexNumbers) {
  EXPECT_EQ(as_double(std::array<float, 2>{2, 3}, DType::kComplex64), 2);
  EXPECT_EQ(as_double(std::array<double, 2>{-2, 3}, DType::kComplex128), -2);
  EXPECT_EQ(as_double(std::array<uint16_t, 2>{0x4000, 0x4200}, DType::kComplex32), 2);
}

TEST(ElementAsDouble, KeepsNanAndInfinity) {
  EXPECT_TRUE(std::isnan(as_double<uint8_t>(0xff, DType::kFloat8E8M0FNU)));
  EXPECT_TRUE(std::isnan(as_double<uint8_t>(0x80, DType::kFloat8E4M3FNUZ)));
  EXPECT_TRUE(std::isnan(as_double<uint16_t>(0xfe00, DType::kFloat16)));
  EXPECT_EQ(as_double<uint8_t>(0xfc, DType::kFloat8E5M2), -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace milepost
