#include "milepost/base/bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/base/segmented_vector.h"

namespace milepost {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string read_text(const ByteSource& source, int64_t offset, size_t length) {
  ByteVector bytes(length);
  source.read_at(offset, bytes);
  return std::string(as_text(bytes));
}

template <typename Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kIo;
}

std::shared_ptr<MemorySource> alphabet() {
  return std::make_shared<MemorySource>(as_bytes("abcdefghijklmnopqrstuvwxyz"), "letters");
}

TEST(MemorySource, ReadsAtAnyOffset) {
  const auto source = alphabet();
  EXPECT_EQ(source->size(), 26);
  EXPECT_EQ(source->name(), "letters");
  EXPECT_EQ(read_text(*source, 0, 3), "abc");
  EXPECT_EQ(read_text(*source, 23, 3), "xyz");
  EXPECT_EQ(read_text(*source, 26, 0), "");
  EXPECT_EQ(std::memcmp(source->data(), "abc", 3), 0);
}

TEST(MemorySource, OwnsABufferThatItIsGiven) {
  ByteVector bytes(5, std::byte{'q'});
  const MemorySource source(std::move(bytes), "owned");
  EXPECT_EQ(read_text(source, 1, 4), "qqqq");
}

TEST(MemorySource, RefusesRangesThatLeaveIt) {
  const auto source = alphabet();
  for (int64_t offset : {int64_t{-1}, int64_t{24}, int64_t{27}, kMax, std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(code_of([&] { read_text(*source, offset, 3); }), ErrorCode::kTruncated) << offset;
  }
}

TEST(MemorySource, SaysWhereAReadFailed) {
  try {
    read_text(*alphabet(), 24, 3);
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_EQ(error.path(), "letters");
    EXPECT_EQ(error.offset(), 24);
  }
}

TEST(SliceSource, ShowsAWindow) {
  const SliceSource slice(alphabet(), 10, 5);
  EXPECT_EQ(slice.size(), 5);
  EXPECT_EQ(read_text(slice, 0, 5), "klmno");
  EXPECT_EQ(read_text(slice, 3, 2), "no");
  EXPECT_EQ(*slice.data(), std::byte{'k'});
}

TEST(SliceSource, RefusesReadsBeyondTheWindow) {
  const SliceSource slice(alphabet(), 10, 5);
  for (int64_t offset : {int64_t{-1}, int64_t{4}, int64_t{6}, kMax, std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(code_of([&] { read_text(slice, offset, 2); }), ErrorCode::kTruncated) << offset;
  }
}

TEST(SliceSource, RefusesAWindowThatLeavesTheSource) {
  EXPECT_EQ(code_of([] { SliceSource(alphabet(), 20, 7); }), ErrorCode::kOutOfBounds);
  EXPECT_EQ(code_of([] { SliceSource(alphabet(), -1, 2); }), ErrorCode::kOutOfBounds);
  EXPECT_EQ(code_of([] { SliceSource(alphabet(), kMax, kMax); }), ErrorCode::kOutOfBounds);
  EXPECT_EQ(SliceSource(alphabet(), 26, 0).size(), 0);
}

TEST(SliceSource, MayBeSlicedAgain) {
  const auto outer = std::make_shared<SliceSource>(alphabet(), 5, 10);
  EXPECT_EQ(read_text(SliceSource(outer, 2, 3), 0, 3), "hij");
}

TEST(ReadAll, ReturnsTheWholeSourceWithinItsLimit) {
  EXPECT_EQ(read_all(*alphabet(), 26).size(), 26u);
  EXPECT_EQ(code_of([] { read_all(*alphabet(), 25); }), ErrorCode::kTooLarge);
}

TEST(VectorSink, CollectsInOrder) {
  VectorSink sink;
  sink.append(as_bytes("ab"));
  sink.append({});
  sink.append(as_bytes("c"));
  EXPECT_EQ(as_text(sink.data), "abc");
}

TEST(CheckedMath, RefusesToWrap) {
  int64_t result = 0;
  EXPECT_TRUE(checked_add(kMax - 1, 1, &result));
  EXPECT_FALSE(checked_add(kMax, 1, &result));
  EXPECT_FALSE(checked_mul(kMax / 2 + 1, 2, &result));
}

TEST(CheckedMath, MultipliesShapes) {
  const auto product = [](std::vector<int64_t> values) {
    int64_t result = -7;
    return checked_product(values, &result) ? result : -1;
  };
  EXPECT_EQ(product({}), 1);
  EXPECT_EQ(product({3, 4, 5}), 60);
  EXPECT_EQ(product({kMax, kMax, 0}), 0);
  EXPECT_EQ(product({kMax, 2}), -1);
  EXPECT_EQ(product({0, -1}), -1);
}

TEST(CheckedMath, RangeFitsNeverAdds) {
  EXPECT_TRUE(range_fits(0, 0, 0));
  EXPECT_TRUE(range_fits(3, 4, 7));
  EXPECT_FALSE(range_fits(3, 5, 7));
  EXPECT_FALSE(range_fits(kMax, kMax, kMax));
  EXPECT_FALSE(range_fits(-1, 1, 7));
  EXPECT_FALSE(range_fits(1, -1, 7));
}

TEST(CheckedMath, CeilDivHoldsUpToTheLargestNumber) {
  EXPECT_EQ(ceil_div(7, 2), 4);
  EXPECT_EQ(ceil_div(8, 2), 4);
  EXPECT_EQ(ceil_div(0, 5), 0);
  EXPECT_EQ(ceil_div(kMax, 2), kMax / 2 + 1);
}

TEST(SegmentedVector, KeepsAddressesWhileItGrows) {
  SegmentedVector<int64_t, 16> numbers;
  numbers.push_back(0);
  const int64_t* first = &numbers[0];
  for (int64_t i = 1; i < 1000; ++i) numbers.push_back(i);
  EXPECT_EQ(&numbers[0], first);
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], static_cast<int64_t>(i));
  EXPECT_LE(numbers.memory_bytes(), 1000 * sizeof(int64_t) + 16 * sizeof(int64_t) + 128 * sizeof(void*));
}

TEST(SegmentedVector, ResizesBothWays) {
  SegmentedVector<int32_t, 8> numbers;
  numbers.resize(20, 7);
  EXPECT_EQ(numbers[19], 7);
  numbers.resize(3, 0);
  EXPECT_EQ(numbers.size(), 3u);
  numbers.push_back(9);
  EXPECT_EQ(numbers[3], 9);
  numbers.resize(30, 1);
  EXPECT_EQ(numbers[3], 9);
  EXPECT_EQ(numbers[29], 1);
}

}  // namespace
}  // namespace milepost
