#include "train/run/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/torch.h"

namespace milepost::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Plot, DrawsAFallingLine) {
  const std::vector<double> values = {4, 3, 2, 1};
  EXPECT_THAT(
      plot(values, 1, {.columns = 10, .rows = 4, .unicode = false}),
      ElementsAre("   4.0000 |#", "          |##", "          |##.", "   1.0000 |###.", "           1  4"));
}

TEST(Plot, AveragesWhatFallsOnOneColumn) {
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i < 500 ? 2 : 1;
  const std::vector<std::string> lines = plot(values, 11, {.columns = 2, .rows = 2, .unicode = false});
  EXPECT_EQ(lines[0], "   2.0000 |#");
  EXPECT_EQ(lines[2], "           11 1010");
}

TEST(Plot, LeavesOutWhatIsNotFinite) {
  const std::vector<double> values = {2, NAN, INFINITY, 1};
  EXPECT_THAT(plot(values, 1, {.columns = 4, .rows = 2, .unicode = false}),
              ElementsAre("   2.0000 |#", "   1.0000 |#  .", "           1  4"));
}

TEST(Plot, IsEmptyForLessThanTwoValues) {
  EXPECT_THAT(plot(std::vector<double>{1.0}, 1), IsEmpty());
  EXPECT_THAT(plot(std::vector<double>{}, 1), IsEmpty());
}

TEST(Plot, DrawsEqualValues) { EXPECT_THAT(plot(std::vector<double>{1.0, 1.0, 1.0}, 1), SizeIs(9)); }

}  // namespace
}  // namespace milepost::train
