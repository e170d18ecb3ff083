#include "train/run/non_finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/torch.h"

namespace milepost::train {
namespace {

using testing::HasSubstr;

Parameter parameter(const std::string& name, double value, double gradient) {
  Parameter made;
  made.name = name;
  made.local = at::full({4}, value).set_requires_grad(true);
  made.local.mutable_grad() = at::full({4}, gradient);
  return made;
}

class NonFinite : public testing::Test {
 protected:
  Parameter first = parameter("first", 1, 1), second = parameter("second", 1, 1);
  const std::vector<Parameter*> all = {&first, &second};
};

TEST_F(NonFinite, PassesWhatIsFinite) {
  EXPECT_EQ(first_non_finite(all), std::nullopt);
  EXPECT_NO_THROW(check_finite(3, 2.0, 1.0, all));
}

TEST_F(NonFinite, NamesTheFirstGradient) {
  second.local.mutable_grad()[2] = NAN;
  EXPECT_EQ(first_non_finite(all), "the gradient of second");
  first.local.mutable_grad()[1] = INFINITY;
  EXPECT_EQ(first_non_finite(all), "the gradient of first");
}

TEST_F(NonFinite, PrefersValues) {
  first.local.mutable_grad()[0] = NAN;
  second.local.detach()[3] = -INFINITY;
  EXPECT_EQ(first_non_finite(all), "the value of second");
}

TEST_F(NonFinite, TakesASumThatOverflowsForWhatItIs) {
  first.local.detach().fill_(std::numeric_limits<float>::max());
  EXPECT_EQ(first_non_finite(all), std::nullopt);
}

TEST_F(NonFinite, SaysStepAndPlace) {
  first.local.mutable_grad()[0] = NAN;
  try {
    check_finite(7, NAN, std::nullopt, all);
    FAIL();
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("Loss is not finite (global_avg_loss=nan) at step 7. Stopping training."));
    EXPECT_THAT(error.what(), HasSubstr("the gradient of first"));
  }
  EXPECT_THROW(check_finite(7, 1.0, INFINITY, all), NonFiniteError);
}

}  // namespace
}  // namespace milepost::train
