#include "milepost/tensor/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace milepost {
namespace {

Dims scaled(DimsView strides, int64_t factor) {
  Dims result(strides.begin(), strides.end());
  for (int64_t& stride : result) stride *= factor;
  return result;
}

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One side of a copy: strides of a dense array whose dimensions lie in any order, with gaps and reversals.
struct Side {
  Dims strides;
  int64_t start = 0, bytes = 0;
};

Side random_side(const Dims& sizes, int64_t element_size, std::mt19937_64& random) {
  Side side{Dims(sizes.size(), 0), 0, element_size};
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (random() % 3 != 0) std::shuffle(order.begin(), order.end(), random);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    const int64_t gap = random() % 3 == 0 ? static_cast<int64_t>(random() % 3) * element_size : 0;
    const int64_t stride = side.bytes + gap;
    const int64_t span = stride * (sizes[d] - 1);
    side.bytes += span;
    side.strides[d] = stride;
    if (random() % 4 == 0) {
      side.strides[d] = -stride;
      side.start += span;
    }
  }
  return side;
}

// The definition, element by element.
void copy_plainly(std::byte* dst, DimsView dst_strides, const std::byte* src, DimsView src_strides,
                  DimsView sizes, int64_t element_size) {
  if (sizes.empty()) {
    std::memcpy(dst, src, static_cast<size_t>(element_size));
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i) {
    copy_plainly(dst + i * dst_strides[0], dst_strides.subspan(1), src + i * src_strides[0],
                 src_strides.subspan(1), sizes.subspan(1), element_size);
  }
}

class CopyStrided : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(ElementSize, CopyStrided, testing::Values(1, 2, 3, 4, 8, 12, 16));

TEST_P(CopyStrided, EqualsTheDefinitionForAnyStrides) {
  const int64_t element_size = GetParam();
  std::mt19937_64 random(static_cast<uint64_t>(element_size));
  for (int round = 0; round < 400; ++round) {
    Dims sizes;
    for (size_t ndim = random() % 6; sizes.size() < ndim;)
      sizes.push_back(1 + static_cast<int64_t>(random() % 5));
    const Side to = random_side(sizes, element_size, random), from = random_side(sizes, element_size, random);
    const ByteVector source = random_bytes(static_cast<size_t>(from.bytes), random());
    ByteVector expected(static_cast<size_t>(to.bytes), std::byte{0xee}), actual = expected;
    copy_plainly(expected.data() + to.start, to.strides, source.data() + from.start, from.strides, sizes,
                 element_size);
    copy_strided(actual.data() + to.start, to.strides, source.data() + from.start, from.strides, sizes,
                 element_size);
    ASSERT_EQ(actual, expected) << dims_text(sizes) << " " << dims_text(to.strides) << " "
                                << dims_text(from.strides);
  }
}

TEST_P(CopyStrided, TransposesPlanesLargerThanATile) {
  const int64_t element_size = GetParam();
  const Dims sizes{131, 3, 77};
  const Dims to = scaled(row_major_strides(sizes), element_size);
  const Dims from = scaled(Dims{1, 131, 131 * 3}, element_size);
  const ByteVector source = random_bytes(static_cast<size_t>(num_elements(sizes) * element_size), 1);
  ByteVector expected(source.size()), actual(source.size());
  copy_plainly(expected.data(), to, source.data(), from, sizes, element_size);
  copy_strided(actual.data(), to, source.data(), from, sizes, element_size);
  EXPECT_EQ(actual, expected);
}

TEST_P(CopyStrided, RepeatsASourceOfStrideZero) {
  const int64_t element_size = GetParam();
  const Dims sizes{3, 4};
  const ByteVector source = random_bytes(static_cast<size_t>(4 * element_size), 2);
  ByteVector copy(static_cast<size_t>(12 * element_size));
  copy_strided(copy.data(), Dims{4 * element_size, element_size}, source.data(), Dims{0, element_size}, sizes,
               element_size);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(std::memcmp(copy.data() + row * source.size(), source.data(), source.size()), 0);
  }
  copy_strided(copy.data(), Dims{4 * element_size, element_size}, source.data(), Dims{0, 0}, sizes,
               element_size);
  for (size_t i = 0; i < 12; ++i) {
    const auto at = static_cast<int64_t>(i) * element_size;
    EXPECT_EQ(std::memcmp(copy.data() + at, source.data(), static_cast<size_t>(element_size)), 0);
  }
}

TEST_P(CopyStrided, CopiesABoxOutOfAWholeTensor) {
  const int64_t element_size = GetParam();
  const Dims shape{6, 7, 8}, sizes{3, 2, 8};
  const Dims from = scaled(row_major_strides(shape), element_size),
             to = scaled(row_major_strides(sizes), element_size);
  const ByteVector source = random_bytes(static_cast<size_t>(num_elements(shape) * element_size), 3);
  ByteVector expected(static_cast<size_t>(num_elements(sizes) * element_size)), actual = expected;
  const std::byte* const corner = source.data() + 2 * from[0] + 4 * from[1];
  copy_plainly(expected.data(), to, corner, from, sizes, element_size);
  copy_strided(actual.data(), to, corner, from, sizes, element_size);
  EXPECT_EQ(actual, expected);
}

TEST(CopyStridedEdge, TouchesNothingWhenASizeIsZero) {
  copy_strided(nullptr, Dims{8, 4}, nullptr, Dims{8, 4}, Dims{3, 0}, 4);
  copy_strided(nullptr, Dims{4}, nullptr, Dims{4}, Dims{0}, 4);
}

TEST(CopyStridedEdge, CopiesOneElementFor0d) {
  const float from = 2.5f;
  float to = 0;
  copy_strided(reinterpret_cast<std::byte*>(&to), {}, reinterpret_cast<const std::byte*>(&from), {}, {}, 4);
  EXPECT_EQ(to, 2.5f);
}

TEST(CopyStridedEdge, TakesAsManyDimensionsAsTorch) {
  const Dims sizes(kMaxDims, 1), strides(kMaxDims, 1);
  const std::byte from{7};
  std::byte to{0};
  copy_strided(&to, strides, &from, strides, sizes, 1);
  EXPECT_EQ(to, from);

  Dims deep(kMaxDims, 1), to_strides(kMaxDims, 0), from_strides(kMaxDims, 0);
  for (size_t i = 0; i < 10; ++i) {
    deep[6 * i] = 2;
    to_strides[6 * i] = int64_t{1} << i;
    from_strides[6 * i] = int64_t{1} << (9 - i);
  }
  const ByteVector source = random_bytes(1024, 4);
  ByteVector expected(1024), actual(1024);
  copy_plainly(expected.data(), to_strides, source.data(), from_strides, deep, 1);
  copy_strided(actual.data(), to_strides, source.data(), from_strides, deep, 1);
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace milepost
