#include "milepost/catalog/key_map.h"

#include <gtest/gtest.h>

#include <vector>

namespace milepost {
namespace {

std::vector<int64_t> source_rows(RowOrder order, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < count; ++row) rows.push_back(order.source_row(row));
  return rows;
}

// Spec conversion, section 2: a head of eight rows.
TEST(RowOrder, TurnsNeighbouringPairsIntoHalvesOfAHead) {
  EXPECT_EQ(source_rows({8, 2}, 8), (std::vector<int64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST(RowOrder, TurnsHalvesOfAHeadIntoNeighbouringPairs) {
  EXPECT_EQ(source_rows({8, 4}, 8), (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(RowOrder, KeepsHeadsApart) {
  EXPECT_EQ(source_rows({4, 2}, 8), (std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(RowOrder, IsUndoneByTheOppositeOrder) {
  const RowOrder there{128, 2}, back{128, 64};
  for (int64_t row = 0; row < 512; ++row) EXPECT_EQ(there.source_row(back.source_row(row)), row);
}

TEST(KeyMap, GivesEachTargetOneChunkThatIsTheWhole) {
  KeyMap map;
  map.add("a", DType::kBFloat16, Dims{3, 4}, {whole_part(7, Dims{3, 4})});
  ASSERT_EQ(map.target.tensors().size(), 1U);
  EXPECT_EQ(map.target.chunk_box(map.target.tensors()[0], 0), Box::whole(Dims{3, 4}));
  EXPECT_EQ(map.parts[0][0].num_rows, 3);
}

TEST(KeyMap, CountsAScalarAsOneRow) { EXPECT_EQ(whole_part(0, Dims{}).num_rows, 1); }

}  // namespace
}  // namespace milepost
