#include "milepost/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace milepost::data {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Row {
  std::vector<int64_t> inputs, positions, labels;
};

Row take(Packer* packer, size_t seq_len) {
  Row row{std::vector<int64_t>(seq_len), std::vector<int64_t>(seq_len), std::vector<int64_t>(seq_len)};
  packer->take_row({row.inputs.data(), row.positions.data(), row.labels.data()});
  return row;
}

std::vector<int32_t> letters(int count) {
  std::vector<int32_t> ids{2002};
  for (int i = 0; i < count; ++i) ids.push_back(97 + i % 26);
  ids.push_back(2003);
  return ids;
}

TEST(Packing, GivesTheRowsOfTheWorkedExample) {
  Packer packer(16);
  for (int length : {10, 20, 30}) packer.append(letters(length));
  const Row first = take(&packer, 16);
  EXPECT_THAT(first.inputs,
              ElementsAre(2002, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 2002, 97, 98, 99, 100));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4));
  EXPECT_THAT(first.labels,
              ElementsAre(97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 2003, 97, 98, 99, 100, 101));
  const Row second = take(&packer, 16);
  EXPECT_EQ(second.inputs.front(), 101);
  EXPECT_THAT(second.positions, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(second.labels.back(), 2003);
}

TEST(Packing, CountsACutDocumentFromTheRowsStart) {
  Packer packer(4);
  packer.append(letters(4));  // five tokens
  packer.append(letters(5));
  take(&packer, 4);
  EXPECT_THAT(take(&packer, 4).positions, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(packer.buffers().positions, ElementsAre(3, 4, 5));  // as read
}

TEST(Packing, CutsALongDocumentOverSeveralRows) {
  std::vector<int32_t> ids(1001);
  std::iota(ids.begin(), ids.end(), 0);
  Packer packer(100);
  packer.append(ids);
  for (int64_t i = 0; i < 10; ++i) {
    const Row row = take(&packer, 100);
    EXPECT_EQ(row.inputs.front(), i * 100);
    EXPECT_EQ(row.labels.back(), i * 100 + 100);
    EXPECT_EQ(row.positions.front(), 0);
    EXPECT_EQ(row.positions.back(), 99);
  }
  EXPECT_EQ(packer.held(), 0);
}

TEST(Packing, TakesNothingFromDocumentsWithoutALabel) {
  Packer packer(2);
  packer.append({});
  packer.append(std::vector<int32_t>{7});
  EXPECT_EQ(packer.held(), 0);
}

TEST(Packing, GoesOnFromItsBuffers) {
  Packer one(8), other(8);
  for (int length : {3, 9, 1, 4}) one.append(letters(length));
  take(&one, 8);
  other.set_buffers(one.buffers());
  for (Packer* packer : {&one, &other}) packer->append(letters(11));
  while (one.has_row()) EXPECT_EQ(take(&one, 8).positions, take(&other, 8).positions);
  EXPECT_EQ(one.buffers(), other.buffers());
}

TEST(Packing, DroppedTokensAreAsIfTaken) {
  Packer one(8), other(8);
  for (Packer* packer : {&one, &other}) packer->append(letters(30));
  take(&one, 8);
  EXPECT_EQ(other.drop(8), 8);
  EXPECT_EQ(one.buffers(), other.buffers());
  EXPECT_EQ(other.drop(100), 23);
  EXPECT_EQ(other.held(), 0);
}

TEST(Packing, JoinedBuffersKeepDocumentsApart) {
  const std::vector<PackingBuffers> parts{
      {{1, 2, 3}, {2, 3, 4}, {5, 6, 0}}, {}, {{7, 8, 9}, {8, 9, 10}, {4, 5, 0}}};
  const PackingBuffers joined = join_buffers(parts);
  EXPECT_THAT(joined.inputs, ElementsAre(1, 2, 3, 7, 8, 9));
  EXPECT_THAT(joined.positions, ElementsAre(5, 6, 0, 0, 1, 0));
  EXPECT_THAT(join_buffers({}).inputs, IsEmpty());
}

}  // namespace
}  // namespace milepost::data
