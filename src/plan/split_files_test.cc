#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"

namespace milepost {
namespace {

using testing::ElementsAre;

// The values follow torch 2.13's _split_by_size_and_type.
TEST(SplitOverFiles, SpreadsObjectsInTurnAndTensorsBySize) {
  const std::vector<int64_t> bytes = {4, 0, 100, 60, 0, 60, 8, 0, 100};
  const std::vector<bool> object = {false, true, false, false, true, false, false, true, false};
  EXPECT_THAT(split_over_files(bytes, object, 2),
              ElementsAre(ElementsAre(1, 7, 2, 3, 6), ElementsAre(4, 8, 5, 0)));
  EXPECT_THAT(split_over_files(bytes, object, 3),
              ElementsAre(ElementsAre(1, 2, 6), ElementsAre(4, 8, 0), ElementsAre(7, 3, 5)));
}

TEST(SplitOverFiles, KeepsThePlansOrderInOneFile) {
  EXPECT_THAT(split_over_files({1, 0, 5, 3}, {false, true, false, false}, 1),
              ElementsAre(ElementsAre(1, 0, 2, 3)));
}

TEST(SplitOverFiles, LeavesFilesEmptyWhenThereIsLittle) {
  EXPECT_THAT(split_over_files({7}, {false}, 3), ElementsAre(ElementsAre(0), ElementsAre(), ElementsAre()));
  EXPECT_THAT(split_over_files({}, {}, 2), ElementsAre(ElementsAre(), ElementsAre()));
}

TEST(SplitOverFiles, RefusesNoFiles) { EXPECT_THROW(split_over_files({1}, {false}, 0), ValueError); }

}  // namespace
}  // namespace milepost
