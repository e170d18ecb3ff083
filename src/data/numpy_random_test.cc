#include "milepost/data/numpy_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/checksum.h"

namespace milepost::data {
namespace {

using testing::ElementsAre;

std::string digest(const std::vector<int64_t>& order) {
  return to_hex(sha256(std::as_bytes(std::span(order)))).substr(0, 16);
}

// Expected values: numpy 2.4.6.
TEST(NumpyRandom, PermutesAsNumpyDoes) {
  EXPECT_THAT(numpy_permutation(43, 10), ElementsAre(2, 8, 9, 5, 7, 1, 4, 6, 0, 3));
  EXPECT_THAT(numpy_permutation(44, 7), ElementsAre(3, 0, 2, 5, 4, 1, 6));
  EXPECT_THAT(numpy_permutation((uint64_t{1} << 40) + 3, 12),
              ElementsAre(2, 4, 10, 9, 6, 5, 3, 7, 11, 0, 8, 1));
  EXPECT_THAT(numpy_permutation(43, 1), ElementsAre(0));
  EXPECT_TRUE(numpy_permutation(42, 0).empty());
}

TEST(NumpyRandom, PermutesManyAsNumpyDoes) {
  EXPECT_EQ(digest(numpy_permutation(43, 1000)), "8294665d405d9cf1");
  EXPECT_EQ(digest(numpy_permutation(45, 65537)), "3b5a2ccbb0ff75f8");
  EXPECT_EQ(digest(numpy_permutation(50, 100000)), "deccdebfd2d12f61");
}

TEST(NumpyRandom, DrawsAsNumpyDoes) {
  NumpyGenerator generator(42);
  EXPECT_EQ(generator.uniform(), 0.7739560485559633);
  EXPECT_EQ(generator.uniform(), 0.4388784397520523);
  EXPECT_EQ(generator.uniform(), 0.8585979199113825);
}

TEST(NumpyRandom, ChoosesByWeightAsNumpyDoes) {
  WeightedChoice choice(42, {5, 3, 2});
  std::vector<int64_t> drawn;
  for (int i = 0; i < 20; ++i) drawn.push_back(choice.next());
  EXPECT_THAT(drawn, ElementsAre(1, 0, 2, 1, 0, 2, 1, 1, 0, 0, 0, 2, 1, 2, 0, 0, 1, 0, 2, 1));
}

}  // namespace
}  // namespace milepost::data
