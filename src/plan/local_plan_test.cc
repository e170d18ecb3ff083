#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"

namespace milepost {
namespace {

using testing::ElementsAre;

template <typename Work>
std::string refused_key(Work work) {
  try {
    work();
  } catch (const ValueError& error) {
    return error.key();
  }
  return "not refused";
}

TEST(NameList, GivesEachNameOneIndex) {
  NameList names;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(names.intern("name " + std::to_string(i)), i);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(names.intern("name " + std::to_string(i)), i);
  EXPECT_EQ(names.intern(""), 1000);
  EXPECT_EQ(names.size(), 1001u);
  EXPECT_EQ(names[999], "name 999");
  EXPECT_EQ(names[1000], "");
}

TEST(LocalPlan, KeepsItemsInOrder) {
  LocalPlan plan;
  plan.add_tensor("w", DType::kBFloat16, Dims{4, 6}, {{2, 0}, {2, 6}});
  plan.add_object("step");
  plan.add_tensor("w", DType::kBFloat16, Dims{4, 6}, {{0, 0}, {2, 6}});
  plan.add_tensor("s", DType::kInt64, Dims{}, {});
  ASSERT_EQ(plan.items().size(), 4u);
  const LocalPlan::Item& first = plan.items()[0];
  EXPECT_EQ(plan.names()[first.name], "w");
  EXPECT_EQ(first.dtype, DType::kBFloat16);
  EXPECT_THAT(plan.shape(first), ElementsAre(4, 6));
  EXPECT_THAT(plan.offsets(first), ElementsAre(2, 0));
  EXPECT_THAT(plan.sizes(first), ElementsAre(2, 6));
  EXPECT_EQ(plan.items()[1].ndim, -1);
  EXPECT_EQ(plan.items()[2].name, first.name);
  EXPECT_EQ(plan.items()[3].ndim, 0);
  EXPECT_TRUE(plan.shape(plan.items()[3]).empty());
  EXPECT_TRUE(plan.shape(plan.items()[1]).empty());
}

TEST(LocalPlan, RefusesTwoBoxesAtOnePlace) {
  LocalPlan plan;
  for (int64_t i = 0; i < 100; ++i) plan.add_tensor("w", DType::kInt8, Dims{100}, {{i}, {1}});
  for (int64_t i : {0, 57, 99}) {
    EXPECT_EQ(refused_key([&] { plan.add_tensor("w", DType::kInt8, Dims{100}, {{i}, {2}}); }), "w");
  }
  plan.add_tensor("v", DType::kInt8, Dims{100}, {{57}, {1}});
  plan.add_tensor("s", DType::kInt8, Dims{}, {});
  EXPECT_EQ(refused_key([&] { plan.add_tensor("s", DType::kInt8, Dims{}, {}); }), "s");
}

TEST(LocalPlan, RefusesOneNameForTwoThings) {
  LocalPlan plan;
  plan.add_object("o");
  plan.add_tensor("t", DType::kInt8, Dims{1}, {{0}, {1}});
  EXPECT_EQ(refused_key([&] { plan.add_object("o"); }), "o");
  EXPECT_EQ(refused_key([&] { plan.add_object("t"); }), "t");
  EXPECT_EQ(refused_key([&] { plan.add_tensor("o", DType::kInt8, Dims{}, {}); }), "o");
}

TEST(LocalPlan, RefusesBoxesOfOtherDimensions) {
  LocalPlan plan;
  EXPECT_EQ(refused_key([&] { plan.add_tensor("w", DType::kInt8, Dims{4}, {{0, 0}, {4, 1}}); }), "w");
  EXPECT_EQ(refused_key([&] { plan.add_tensor("w", DType::kInt8, Dims{4}, {}); }), "w");
}

}  // namespace
}  // namespace milepost
