#include "adapt/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

Variables example() {
  return Variables({{"dim", 64}, {"heads", 4}, {"zero", 0}, {"q_lora_rank", 24}, {"huge", kMax}});
}

TEST(Expression, BindsAsInC) {
  const Variables v = example();
  EXPECT_EQ(evaluate("1 + 2 * 3", v), 7);
  EXPECT_EQ(evaluate("(1 + 2) * 3", v), 9);
  EXPECT_EQ(evaluate("10 - 2 - 3", v), 5);
  EXPECT_EQ(evaluate("dim / heads / 2", v), 8);
  EXPECT_EQ(evaluate("heads * (dim + 1)", v), 260);
  EXPECT_EQ(evaluate("1 + 1 == 2 && 3 > 2", v), 1);
  EXPECT_EQ(evaluate("1 || 0 && 0", v), 1);
  EXPECT_EQ(evaluate("!zero && !0", v), 1);
  EXPECT_EQ(evaluate("!heads", v), 0);
  EXPECT_EQ(evaluate("  dim  ", v), 64);
}

TEST(Expression, ComparesToOneOrZero) {
  const Variables v = example();
  for (const char* holds : {"1 < 2", "2 > 1", "2 <= 2", "2 >= 2", "q_lora_rank == 24", "dim != heads"})
    EXPECT_EQ(evaluate(holds, v), 1) << holds;
  for (const char* fails : {"2 < 2", "2 > 2", "3 <= 2", "1 >= 2", "q_lora_rank == 0", "dim != 64"})
    EXPECT_EQ(evaluate(fails, v), 0) << fails;
}

TEST(Expression, ALaterValueHidesAnEarlierOne) {
  Variables v = example();
  v.set("dim", 3);
  EXPECT_EQ(evaluate("dim", v), 3);
}

TEST(Expression, FillsPatternsAndShapes) {
  Variables v = example();
  v.set("layer", 7);
  EXPECT_EQ(fill("model.layers.{layer + 1}.x{heads}", v), "model.layers.8.x4");
  EXPECT_EQ(fill("plain", v), "plain");
  EXPECT_THAT(evaluate_dims("heads * 2, dim", v), ElementsAre(8, 64));
  EXPECT_TRUE(evaluate_dims("", v).empty());
}

TEST(Expression, RefusesWhatItCannotRead) {
  const Variables v = example();
  for (const char* bad : {"", "1 +", "(1", "1)", "1 2", "dim heads", "* 2", "1 / zero", "a.b", "1 = 2"}) {
    EXPECT_THROW(evaluate(bad, v), ValueError) << bad;
  }
  try {
    evaluate("dim * no_such_size", v);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'no_such_size'"));
  }
}

TEST(Expression, NeverWraps) {
  Variables v = example();
  v.set("least", kMin);
  for (const char* large : {"huge + 1", "least - 1", "huge * 2", "least / (0 - 1)", "least * (0 - 1)"}) {
    try {
      evaluate(large, v);
      ADD_FAILURE() << large;
    } catch (const ValueError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTooLarge) << large;
    }
  }
  EXPECT_EQ(evaluate("huge + 0", v), kMax);
  EXPECT_EQ(evaluate("6 / (0 - 1)", v), -6);
}

}  // namespace
}  // namespace milepost::adapt
