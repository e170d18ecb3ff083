#include "milepost/data/document_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace milepost::data {
namespace {

using testing::ElementsAre;

std::vector<int64_t> take(DocumentOrder* order, int count) {
  std::vector<int64_t> out;
  while (count-- > 0) {
    const std::optional<int64_t> document = order->next();
    if (!document) break;
    out.push_back(*document);
  }
  return out;
}

std::vector<int64_t> whole_epoch(const DataShape& shape, int64_t rank, int64_t world) {
  DocumentOrder order(shape, rank, world, /*infinite=*/false);
  return take(&order, 1000);
}

TEST(DocumentOrder, SplitsIntoContiguousBlocks) {
  const DataShape shape{.num_documents = 7, .file_documents = {}};
  EXPECT_THAT(whole_epoch(shape, 0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(whole_epoch(shape, 1, 3), ElementsAre(3, 4));
  EXPECT_THAT(whole_epoch(shape, 2, 3), ElementsAre(5, 6));
}

TEST(DocumentOrder, ReshufflesTheOriginalOrderEachEpoch) {
  DocumentOrder order({.num_documents = 20, .file_documents = {}}, 1, 2, /*infinite=*/true);
  take(&order, 10);
  EXPECT_THAT(take(&order, 10), ElementsAre(12, 18, 19, 15, 17, 11, 14, 16, 10, 13));
  EXPECT_EQ(order.state().epoch, 1);
  take(&order, 1);
  EXPECT_EQ(order.state().epoch, 2);
}

TEST(DocumentOrder, StreamsWholeFilesWhereTheyDivide) {
  const DataShape shape{.num_documents = 9, .file_documents = {2, 3, 0, 4}, .split = Split::kStreaming};
  EXPECT_THAT(whole_epoch(shape, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(whole_epoch(shape, 1, 2), ElementsAre(2, 3, 4, 5, 6, 7, 8));
}

TEST(DocumentOrder, StreamsEveryNthDocumentWhereFilesDoNotDivide) {
  const DataShape shape{.num_documents = 8, .file_documents = {4, 4}, .split = Split::kStreaming};
  EXPECT_THAT(whole_epoch(shape, 0, 3), ElementsAre(0, 3, 6));
  EXPECT_THAT(whole_epoch(shape, 2, 3), ElementsAre(2, 5));
}

TEST(DocumentOrder, StreamsInTheSameOrderAgain) {
  DocumentOrder order({.num_documents = 4, .file_documents = {4}, .split = Split::kStreaming}, 0, 1, true);
  EXPECT_THAT(take(&order, 8), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(DocumentOrder, GoesOnAfterSoManyDocuments) {
  const DataShape shape{.num_documents = 23, .file_documents = {}};
  for (int64_t epoch : {0, 1, 5}) {
    for (int64_t num_read = 0; num_read <= 8; ++num_read) {
      const std::optional<OrderState> state = order_after(shape, epoch, num_read, 0, 3);
      ASSERT_TRUE(state);
      EXPECT_EQ(documents_read(shape, *state, 0, 3), num_read);
    }
    EXPECT_FALSE(order_after(shape, epoch, 9, 0, 3));
    EXPECT_FALSE(order_after(shape, epoch, -1, 0, 3));
  }
}

TEST(DocumentOrder, TellsReshardedStatesFromItsOwn) {
  const DataShape shape{.num_documents = 20, .file_documents = {}};
  const std::vector<OrderState> old{*order_after(shape, 1, 3, 0, 2), *order_after(shape, 1, 7, 1, 2)};
  EXPECT_FALSE(documents_read(shape, reshard(shape, old, 3)[0], 0, 3));
}

// Random walks over world sizes: after all ranks are through with the last epoch that any had begun, every
// document has been read once for each epoch.
TEST(DocumentOrder, ReadsEveryDocumentOncePerEpochWhateverTheRanks) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    DataShape shape{.num_documents = 8 + static_cast<int64_t>(random() % 60), .file_documents = {}};
    if (random() % 3 == 0) shape.split = Split::kStreaming;
    std::map<int64_t, int64_t> counts;
    std::vector<OrderState> states;
    int64_t world = 1 + static_cast<int64_t>(random() % 8);
    for (int64_t rank = 0; rank < world; ++rank) states.push_back(fresh_order(shape, rank, world));
    for (int change = 0; change < 4; ++change) {
      for (int64_t rank = 0; rank < world; ++rank) {
        DocumentOrder order(shape, rank, world, /*infinite=*/true);
        order.set_state(states[static_cast<size_t>(rank)]);
        for (int64_t document : take(&order, static_cast<int>(random() % 30))) ++counts[document];
        states[static_cast<size_t>(rank)] = order.state();
      }
      world = 1 + static_cast<int64_t>(random() % 8);
      states = reshard(shape, states, world);
    }
    for (int64_t rank = 0; rank < world; ++rank) {
      DocumentOrder order(shape, rank, world, /*infinite=*/false);
      order.set_state(states[static_cast<size_t>(rank)]);
      for (int64_t document : take(&order, 100000)) ++counts[document];
    }
    for (int64_t document = 0; document < shape.num_documents; ++document) {
      ASSERT_EQ(counts[document], states[0].epoch + 1) << "document " << document << " in round " << round;
    }
  }
}

}  // namespace
}  // namespace milepost::data
