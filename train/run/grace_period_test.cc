#include "train/run/grace_period.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace milepost::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Optional;

TEST(GracePeriod, WarnsOnceOfWhatTakesLonger) {
  GracePeriod grace;
  EXPECT_EQ(grace.warning(20, 10), std::nullopt);
  EXPECT_THAT(grace.warning(20.4, 10),
              Optional(AllOf(HasSubstr("A step (20 s) and a save (10 s)"), HasSubstr("30 s"))));
  EXPECT_EQ(grace.warning(50, 10), std::nullopt);
}

TEST(GracePeriod, SaysNothingWhereNothingIsSaved) { EXPECT_EQ(GracePeriod().warning(100, 0), std::nullopt); }

}  // namespace
}  // namespace milepost::train
