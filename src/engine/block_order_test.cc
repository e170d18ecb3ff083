#include "engine/block_order.h"

#include <gtest/gtest.h>

#include <random>

namespace milepost {
namespace {

TEST(BlockOrder, TakesBlocksOfAGroupInTurn) {
  const BlockOrder order({2, 3, 1}, 2);
  ASSERT_EQ(order.size(), 6);
  std::vector<std::pair<int64_t, int64_t>> places;
  for (int64_t i = 0; i < order.size(); ++i) places.emplace_back(order.at(i).file, order.at(i).block);
  const std::vector<std::pair<int64_t, int64_t>> want = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {1, 2}, {2, 0}};
  EXPECT_EQ(places, want);
}

TEST(BlockOrder, VisitsEveryBlockOnceAndEachFilesBlocksInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> blocks(1 + random() % 9);
    for (int64_t& count : blocks) count = 1 + static_cast<int64_t>(random() % 12);
    const BlockOrder order(blocks, 1 + static_cast<int>(random() % 4));
    std::vector<int64_t> next(blocks.size());
    for (int64_t i = 0; i < order.size(); ++i) {
      const BlockOrder::Place place = order.at(i);
      ASSERT_EQ(place.block, next[static_cast<size_t>(place.file)]++);
    }
    EXPECT_EQ(next, blocks);
  }
}

}  // namespace
}  // namespace milepost
