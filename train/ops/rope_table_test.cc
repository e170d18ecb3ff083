#include <gtest/gtest.h>

#include "train/ops/rope.h"

namespace milepost::train {
namespace {

using Scaling = flavor::Rope::Scaling;

void expect_last_row(const flavor::Rope& rope, const std::vector<float>& cos, const std::vector<float>& sin) {
  const RopeTable table = make_rope_table(rope, 16, 64);
  ASSERT_EQ(table.cos.sizes(), (at::IntArrayRef{64, 8}));
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(table.cos[63][i].item<float>(), cos[static_cast<size_t>(i)], 1e-6) << i;
    EXPECT_NEAR(table.sin[63][i].item<float>(), sin[static_cast<size_t>(i)], 1e-6) << i;
  }
}

// Expected values: TorchTitan 0.3.0's table of complex numbers, position 63.
TEST(RopeTable, IsThatOfTheReference) {
  expect_last_row({.theta = 10000},
                  {0.985896587F, 0.477671444F, 0.999858618F, -0.40907374F, 0.808027506F, 0.980220556F,
                   0.998016179F, 0.999801576F},
                  {0.167355701F, 0.878538549F, 0.0168140903F, 0.912501335F, 0.589144766F, 0.197908252F,
                   0.0629583374F, 0.0199210308F});
}

TEST(RopeTable, IsStretchedAsYarn) {
  const flavor::Rope rope{
      .theta = 10000, .scaling = Scaling::kYarn, .factor = 40, .original_max_seq_len = 4096};
  expect_last_row(rope,
                  {0.985896587F, 0.477671444F, 0.999858618F, 0.0641246215F, 0.948327124F, 0.998566985F,
                   0.999998748F, 0.999999881F},
                  {0.167355701F, 0.878538549F, 0.0168140903F, 0.997941911F, 0.3172943F, 0.0535157397F,
                   0.00157499942F, 0.00049805874F});
}

TEST(RopeTable, IsStretchedAsLlama) {
  const flavor::Rope rope{
      .theta = 500000, .scaling = Scaling::kLlama, .factor = 8, .original_max_seq_len = 64};
  expect_last_row(
      rope,
      {0.985896587F, 0.285953104F, 0.956467867F, 0.998351395F, 0.999938011F, 0.999997675F, 0.99999994F, 1},
      {0.167355701F, -0.958243608F, 0.291837573F, 0.057398174F, 0.0111367004F, 0.00215970282F,
       0.000418815791F, 8.1217906e-05F});
}

}  // namespace
}  // namespace milepost::train
