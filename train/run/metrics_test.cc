#include "train/run/metrics.h"

#include <gtest/gtest.h>

#include "train/torch.h"

namespace milepost::train {
namespace {

StepFigures example() {
  StepFigures figures;
  figures.step = 1;
  figures.loss = figures.max_loss = 8.0401234;
  figures.grad_norm = 1.83412;
  figures.memory = {int64_t{1} << 29, int64_t{1} << 29, int64_t{1} << 36};
  figures.rates = {1234.5, 1234.567, 31.2};
  return figures;
}

TEST(StepLine, HasTorchTitansFormWithoutColours) {
  EXPECT_EQ(step_line(example(), {}),
            "step:  1  loss:  8.04012  grad_norm:  1.8341  memory:  0.50GiB(0.78%)  tps: 1,234  "
            "tflops: 1,234.57  mfu: 31.20%");
}

TEST(StepLine, HasTorchTitansColours) {
  EXPECT_EQ(step_line(example(), Colors::terminal()),
            "\x1b[31mstep:  1  \x1b[32mloss:  8.04012  \x1b[38;2;180;60;0mgrad_norm:  1.8341  "
            "\x1b[38;2;54;234;195mmemory:  0.50GiB(0.78%)  \x1b[34mtps: 1,234  \x1b[36mtflops: 1,234.57  "
            "\x1b[35mmfu: 31.20%\x1b[39m");
}

TEST(ValidationLine, HasTorchTitansForm) {
  EXPECT_EQ(validation_line(example(), {}),
            "validate step:  1  loss:  8.0401  memory:  0.50GiB(0.78%)  tps: 1,234");
}

TEST(Rates, FollowFromTokensTimeAndOperations) {
  const Rates rates_of_interval = rates({.num_tokens = 1000, .seconds = 2}, 4'000'000'000, 1e13);
  EXPECT_DOUBLE_EQ(rates_of_interval.tokens_per_second, 500);
  EXPECT_DOUBLE_EQ(rates_of_interval.tflops, 2);
  EXPECT_DOUBLE_EQ(rates_of_interval.mfu_percent, 20);
}

TEST(Rates, HaveNoUtilisationWithoutAPeak) {
  EXPECT_EQ(rates({.num_tokens = 1000, .seconds = 2}, 4, 0).mfu_percent, 0);
}

TEST(MemoryUse, JoinsToTheGreater) {
  MemoryUse use{1, 5, 10, 1, 0};
  use.join({3, 2, 10, 1, 2});
  EXPECT_EQ(use.active_bytes, 3);
  EXPECT_EQ(use.reserved_bytes, 5);
  EXPECT_EQ(use.num_retries, 2);
  EXPECT_EQ(use.num_failures, 2);
  EXPECT_DOUBLE_EQ(use.reserved_percent(), 50);
}

TEST(WithCommas, GroupsThousands) {
  EXPECT_EQ(with_commas(int64_t{0}), "0");
  EXPECT_EQ(with_commas(int64_t{999}), "999");
  EXPECT_EQ(with_commas(int64_t{1000}), "1,000");
  EXPECT_EQ(with_commas(int64_t{671'026'404'352}), "671,026,404,352");
  EXPECT_EQ(with_commas(int64_t{-123'456}), "-123,456");
  EXPECT_EQ(with_commas(1234.5, 2), "1,234.50");
  EXPECT_EQ(with_commas(0.126, 2), "0.13");
}

}  // namespace
}  // namespace milepost::train
