#include "milepost/tensor/block_scale.h"

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

#include "milepost/base/bytes.h"
#include "milepost/tensor/copy.h"
#include "tensor/block_scale_kernels.h"
#include "tensor/float_formats.h"

namespace milepost {
namespace {

constexpr std::array kCodeTypes = {DType::kFloat8E4M3FN, DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ,
                                   DType::kFloat8E5M2FNUZ};
constexpr std::array kResults = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr std::array kSources = {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The files of tools/make_block_scale_golden.py.
ByteVector read_golden(const std::string& name) {
  const std::string path = MILEPOST_TEST_DATA "/block_scale/" + name + ".bin";
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

constexpr size_t kGoldenScales = 9;

std::vector<float> scales_of(Bytes golden) {
  std::vector<float> scales(kGoldenScales);
  std::memcpy(scales.data(), golden.data(), kGoldenScales * sizeof(float));
  return scales;
}

const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Ordinary ones, then any bits at all, with the odd ones in front.
std::vector<float> many_scales(size_t count) {
  std::mt19937 random(7);
  std::vector<float> scales{1,      0.0f,    -0.0f,     kInfinity, -kInfinity, kNan,    1e-45f,
                            1e-40f, -3e-39f, 0x1p-126f, 0x1p127f,  3e38f,      1.5e-3f, -0.25f};
  while (scales.size() < count / 2)
    scales.push_back(std::ldexp(1 + random() * 0x1p-32f, -int(random() % 20)));
  while (scales.size() < count) scales.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return scales;
}

// Every value of the 16-bit types; for the wider ones all kinds of bits, most of them near float8's range.
ByteVector many_values(DType dtype) {
  std::mt19937_64 random(8);
  ByteVector values(size_of(dtype) << 16);
  for (uint64_t i = 0; i < 1 << 16; ++i) {
    uint64_t code = i;
    if (dtype == DType::kFloat32) {
      code = i % 4 == 0 ? random() : (i & 0x80ff) << 16 | (100 + i % 40) << 23 | (random() % 3 << 19);
    } else if (dtype == DType::kFloat64) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
      code = i % 4 == 0 ? random() : std::bit_cast<uint64_t>(static_cast<double>(value));
    }
    std::memcpy(values.data() + i * size_of(dtype), &code, size_of(dtype));
  }
  return values;
}

TEST(DequantiseRow, EqualsTorchForEveryCode) {
  ByteVector codes(256 * kGoldenScales);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i % 256);
  for (DType from : kCodeTypes) {
    const ByteVector golden = read_golden(std::string(dtype_name(from)));
    ASSERT_EQ(golden.size(), kGoldenScales * (sizeof(float) + 256 * 8));
    const std::vector<float> scales = scales_of(golden);
    const std::byte* expected = golden.data() + kGoldenScales * sizeof(float);
    for (DType to : kResults) {
      ByteVector actual(codes.size() * size_of(to));
      dequantise_row(actual.data(), to, codes.data(), from, scales.data(), 256, 0,
                     static_cast<int64_t>(codes.size()));
      for (size_t i = 0; i < codes.size(); ++i) {
        ASSERT_EQ(std::memcmp(actual.data() + i * size_of(to), expected + i * size_of(to), size_of(to)), 0)
            << dtype_name(from) << " " << i % 256 << " times " << scales[i / 256] << " to " << dtype_name(to);
      }
      expected += actual.size();
    }
  }
}

TEST(QuantiseRow, EqualsTorchForHardValues) {
  for (DType from : kSources) {
    const ByteVector golden = read_golden("quantise_" + std::string(dtype_name(from)));
    const std::vector<float> scales = scales_of(golden);
    const std::byte* at = golden.data() + kGoldenScales * sizeof(float);
    int32_t count = 0;
    std::memcpy(&count, at, sizeof count);
    const std::byte* const values = at + sizeof count;
    const size_t bytes = static_cast<size_t>(count) * size_of(from);
    ASSERT_GT(count, 500);
    ASSERT_EQ(golden.size(), 40 + bytes + kGoldenScales * static_cast<size_t>(count));
    for (size_t s = 0; s < kGoldenScales; ++s) {
      const std::byte* const expected = values + bytes + s * static_cast<size_t>(count);
      ByteVector actual(static_cast<size_t>(count));
      quantise_row(actual.data(), values, from, &scales[s], count, 0, count);
      for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_EQ(actual[i], expected[i])
            << dtype_name(from) << " " << element_as_double(values + i * size_of(from), from) << " / "
            << scales[s];
      }
    }
  }
}

TEST(DequantiseMxfp4Row, EqualsTorchForEveryCodeAndScale) {
  const ByteVector golden = read_golden("mxfp4");
  ASSERT_EQ(golden.size(), 256u * (8 + 16 * 8));
  const auto* const packed = reinterpret_cast<const uint8_t*>(golden.data());
  std::array<uint8_t, 256> scales;
  for (size_t i = 0; i < 256; ++i) scales[i] = static_cast<uint8_t>(i);
  const std::byte* expected = golden.data() + size_t{256} * 8;
  for (DType to : kResults) {
    ByteVector actual(256 * 16 * size_of(to));
    dequantise_mxfp4_row(actual.data(), to, packed, scales.data(), 16, 0, 256 * 16);
    for (size_t i = 0; i < 256; ++i) {
      const size_t bytes = 16 * size_of(to);
      ASSERT_EQ(std::memcmp(actual.data() + i * bytes, expected + i * bytes, bytes), 0)
          << "scale " << i << " to " << dtype_name(to);
    }
    expected += actual.size();
  }
}

TEST(DequantiseMxfp4Row, TakesTheLowNibbleFirst) {
  const std::array<uint8_t, 2> packed = {0x71, 0xf9}, scales = {128, 255};
  std::array<float, 4> values;
  dequantise_mxfp4_row(reinterpret_cast<std::byte*>(values.data()), DType::kFloat32, packed.data(),
                       scales.data(), 3, 0, 4);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 12);
  EXPECT_EQ(values[2], -1);
  EXPECT_TRUE(std::isnan(values[3])) << "scale 255";
}

// Does `whole` for all columns and for every stretch in turn, at odd addresses, and compares.
template <typename Run>
void expect_stretches_equal(int64_t columns, int64_t size, Run run) {
  const auto bytes = static_cast<size_t>(columns * size);
  ByteVector whole(bytes), part(bytes + 2);
  run(whole.data(), int64_t{0}, columns);
  for (int64_t first = 0; first <= columns; first += first % 3 + 1) {
    for (int64_t count = 0; count <= columns - first; count += count % 5 + 1) {
      std::ranges::fill(part, std::byte{0x5a});
      run(part.data() + 1, first, count);
      const auto end = static_cast<size_t>(count * size);
      ASSERT_EQ(std::memcmp(part.data() + 1, whole.data() + first * size, end), 0) << first << " " << count;
      ASSERT_EQ(part[0], std::byte{0x5a});
      ASSERT_EQ(part[end + 1], std::byte{0x5a}) << "wrote beyond the end";
    }
  }
}

constexpr int64_t kColumns = 150;

TEST(DequantiseRow, GivesTheSameForAnyStretchOfTheRow) {
  const ByteVector codes = random_bytes(kColumns + 1, 1);
  const std::vector<float> scales = many_scales(kColumns);
  for (DType from : {DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    for (DType to : kResults) {
      for (int64_t block : {1, 16, 47, 128, 1000}) {
        expect_stretches_equal(kColumns, dtype_size(to), [&](std::byte* dst, int64_t first, int64_t count) {
          dequantise_row(dst, to, codes.data() + 1 + first, from, scales.data(), block, first, count);
        });
      }
    }
  }
}

TEST(QuantiseRow, GivesTheSameForAnyStretchOfTheRow) {
  for (DType from : kSources) {
    const ByteVector values = random_bytes(kColumns * size_of(from) + 1, 2);
    const std::vector<float> scales = many_scales(kColumns);
    for (int64_t block : {1, 16, 47, 128, 1000}) {
      expect_stretches_equal(kColumns, 1, [&](std::byte* dst, int64_t first, int64_t count) {
        quantise_row(dst, values.data() + 1 + first * dtype_size(from), from, scales.data(), block, first,
                     count);
      });
    }
  }
}

TEST(DequantiseMxfp4Row, GivesTheSameForAnyStretchOfTheRow) {
  const ByteVector packed = random_bytes(kColumns / 2, 3), scales = random_bytes(kColumns, 4);
  for (DType to : kResults) {
    for (int64_t block : {1, 32, 47, 1000}) {
      expect_stretches_equal(kColumns, dtype_size(to), [&](std::byte* dst, int64_t first, int64_t count) {
        dequantise_mxfp4_row(dst, to, reinterpret_cast<const uint8_t*>(packed.data()),
                             reinterpret_cast<const uint8_t*>(scales.data()), block, first, count);
      });
    }
  }
}

TEST(BlockScale, TakesBlocksOfAnyLength) {
  const std::byte code{0x38};
  const float scale = 2;
  float value = 0;
  dequantise_row(reinterpret_cast<std::byte*>(&value), DType::kFloat32, &code, DType::kFloat8E4M3FN, &scale,
                 std::numeric_limits<int64_t>::max(), 7, 1);
  EXPECT_EQ(value, 2);
}

TEST(AccumulateAmax, FindsTheLargestMagnitudeOfEachBlock) {
  constexpr int64_t kBlock = 47;
  std::mt19937 random(5);
  for (DType from : kSources) {
    ByteVector values(kColumns * size_of(from) + 1);
    std::vector<float> floats(kColumns);
    for (float& value : floats) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    cast(values.data() + 1, from, bytes_of(floats), DType::kFloat32, kColumns);
    for (int64_t first : {0, 1, 46, 47, 60, 149, 150}) {
      std::vector<float> amax{3, 0, 5000, 0}, expected = amax;
      for (int64_t i = first; i < kColumns; ++i) {
        const double value = element_as_double(values.data() + 1 + i * dtype_size(from), from);
        float& best = expected[static_cast<size_t>(i / kBlock)];
        best = std::max(best, static_cast<float>(std::abs(value)));
      }
      accumulate_amax(amax.data(), values.data() + 1 + first * dtype_size(from), from, kBlock, first,
                      kColumns - first);
      EXPECT_EQ(amax, expected) << dtype_name(from) << " from column " << first;
    }
  }
}

TEST(AccumulateAmax, KeepsNanAndInfinity) {
  const std::vector<float> floats{1, -kInfinity, -kNan, kInfinity, 2, 3};
  for (DType from : kSources) {
    ByteVector values(floats.size() * size_of(from));
    cast(values.data(), from, bytes_of(floats), DType::kFloat32, 6);
    std::array<float, 3> amax{};
    accumulate_amax(amax.data(), values.data(), from, 2, 0, 6);
    EXPECT_EQ(amax[0], kInfinity) << dtype_name(from);
    EXPECT_EQ(std::bit_cast<uint32_t>(amax[1]), 0x7fc00000u) << dtype_name(from);
    EXPECT_EQ(amax[2], 3) << dtype_name(from);
    accumulate_amax(amax.data(), values.data(), from, 6, 0, 1);
    accumulate_amax(amax.data() + 1, values.data(), from, 6, 0, 2);
    EXPECT_EQ(amax[0], kInfinity) << dtype_name(from);
    EXPECT_TRUE(std::isnan(amax[1])) << "no number takes the place of NaN";
  }
}

TEST(AccumulateAmax, RoundsFloat64AsACastToFloat32Does) {
  const std::array values = {1 + 0x1p-30, 1e300};
  std::array<float, 2> amax{};
  accumulate_amax(amax.data(), reinterpret_cast<const std::byte*>(values.data()), DType::kFloat64, 1, 0, 2);
  EXPECT_EQ(amax[0], 1);
  EXPECT_EQ(amax[1], kInfinity);
}

TEST(Fp8Scale, MapsTheLargestMagnitudeToTheLargestCode) {
  EXPECT_EQ(fp8_scale(448), 1);
  EXPECT_EQ(fp8_scale(3), 3.0f / 448);
  EXPECT_EQ(fp8_scale(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(fp8_scale(kNan)));
}

TEST(Fp8Scale, IsNeverZero) {
  EXPECT_EQ(fp8_scale(0), 1);
  EXPECT_EQ(fp8_scale(1e-45f), 1) << "1e-45 / 448 is 0 in float32, and 0 / 0 would be NaN";
}

TEST(BlockScale, GivesTheSameFloat8AgainAfterBfloat16) {
  constexpr int64_t kBlock = 128, kCount = 128 * 64;
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> floats(kCount);
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(i / 128) * 3 - 100);
  }
  ByteVector values(kCount * 2), first(kCount), second(kCount);
  cast(values.data(), DType::kBFloat16, bytes_of(floats), DType::kFloat32, kCount);
  std::vector<float> scales;
  for (ByteVector* codes : {&first, &second}) {
    std::vector<float> amax(64);
    accumulate_amax(amax.data(), values.data(), DType::kBFloat16, kBlock, 0, kCount);
    for (float& value : amax) value = fp8_scale(value);
    if (codes == &second) {
      EXPECT_EQ(amax, scales);
    }
    scales = amax;
    quantise_row(codes->data(), values.data(), DType::kBFloat16, scales.data(), kBlock, 0, kCount);
    dequantise_row(values.data(), DType::kBFloat16, codes->data(), DType::kFloat8E4M3FN, scales.data(),
                   kBlock, 0, kCount);
  }
  EXPECT_EQ(first, second);
}

TEST(BlockScaleKernels, DequantiseToTheSameBitsOnEveryProcessor) {
  ByteVector codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::byte>(i);
  for (DType to : kResults) {
    ByteVector expected(256 * size_of(to)), actual(expected.size());
    for (float scale : many_scales(4000)) {
      dequantise_run(DType::kFloat8E4M3FN, to, CpuLevel::kPortable)(expected.data(), codes.data(), scale,
                                                                    256);
      dequantise_run(DType::kFloat8E4M3FN, to)(actual.data(), codes.data(), scale, 256);
      ASSERT_EQ(actual, expected) << scale << " to " << dtype_name(to);
    }
  }
}

TEST(BlockScaleKernels, DequantiseMxfp4ToTheSameBitsOnEveryProcessor) {
  ByteVector packed(256);
  for (size_t i = 0; i < 256; ++i) packed[i] = static_cast<std::byte>(i);
  for (DType to : kResults) {
    ByteVector expected(512 * size_of(to)), actual(expected.size());
    for (uint32_t code = 0; code < 256; ++code) {
      const float scale = decode_e8m0(code);
      dequantise_mxfp4_run(to, CpuLevel::kPortable)(expected.data(), packed.data(), scale, 512);
      dequantise_mxfp4_run(to)(actual.data(), packed.data(), scale, 512);
      ASSERT_EQ(actual, expected) << scale << " to " << dtype_name(to);
    }
  }
}

TEST(BlockScaleKernels, QuantiseToTheSameBitsOnEveryProcessor) {
  for (DType from : kSources) {
    const ByteVector values = many_values(from);
    ByteVector expected(1 << 16), actual(1 << 16);
    for (float scale : many_scales(40)) {
      quantise_run(from, CpuLevel::kPortable)(expected.data(), values.data(), scale, 1 << 16);
      quantise_run(from)(actual.data(), values.data(), scale, 1 << 16);
      ASSERT_EQ(actual, expected) << dtype_name(from) << " / " << scale;
    }
  }
}

TEST(BlockScaleKernels, FindTheSameAmaxOnEveryProcessor) {
  for (DType from : kSources) {
    const ByteVector values = many_values(from);
    for (int64_t first = 0, count = 0; first + count <= 1 << 16; first += count, count = (count + 7) % 300) {
      const std::byte* const src = values.data() + first * dtype_size(from);
      const float expected = amax_run(from, CpuLevel::kPortable)(src, count);
      ASSERT_EQ(std::bit_cast<uint32_t>(amax_run(from)(src, count)), std::bit_cast<uint32_t>(expected))
          << dtype_name(from) << " " << first << " " << count;
    }
  }
}

TEST(BlockScaleKernels, AreThereForTheTypesOfTheHeaderOnly) {
  for (CpuLevel level : {CpuLevel::kPortable, cpu_level()}) {
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      const bool is_code = std::ranges::count(kCodeTypes, dtype) == 1;
      const bool is_source = std::ranges::count(kSources, dtype) == 1;
      const bool is_result = std::ranges::count(kResults, dtype) == 1;
      EXPECT_EQ(dequantise_run(dtype, DType::kBFloat16, level) != nullptr, is_code) << dtype_name(dtype);
      EXPECT_EQ(dequantise_run(DType::kFloat8E4M3FN, dtype, level) != nullptr, is_result)
          << dtype_name(dtype);
      EXPECT_EQ(dequantise_mxfp4_run(dtype, level) != nullptr, is_result) << dtype_name(dtype);
      EXPECT_EQ(quantise_run(dtype, level) != nullptr, is_source) << dtype_name(dtype);
      EXPECT_EQ(amax_run(dtype, level) != nullptr, is_source) << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace milepost
