#include "train/run/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/torch.h"

namespace milepost::train {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

RunTotals totals_of_four() {
  RunTotals totals;
  totals.first_step = 11;
  totals.losses = {4, 3, 2, 1};
  totals.trained = {.num_tokens = 3000, .num_steps = 3, .seconds = 2};
  totals.seconds = 4;
  totals.phase_seconds[static_cast<size_t>(Phase::kForward)] = 1;
  return totals;
}

RunSummary summary_of(const RunTotals& totals) {
  return {.title = "llama3 debugmodel",
          .totals = totals,
          .flops_per_token = 2'000'000'000,
          .causal_flops_per_token = 1'000'000'000,
          .peak_flops = 3e12,
          .peak_source = "a guess",
          .peak_bytes = int64_t{3} << 30,
          .start_bytes = int64_t{1} << 30,
          .estimate = {},
          .checkpoint_folder = "",
          .metrics_path = "out/metrics.jsonl"};
}

TEST(Summary, FitsOnAScreen) {
  const RunTotals totals = totals_of_four();
  EXPECT_LE(summary_lines(summary_of(totals), false).size(), 24u);
}

TEST(Summary, TellsLossSpeedTimeAndMemory) {
  const RunTotals totals = totals_of_four();
  const std::vector<std::string> lines = summary_lines(summary_of(totals), false);
  EXPECT_THAT(lines, Contains(HasSubstr("4.00000 at step 11, 1.00000 at step 14")));
  EXPECT_THAT(lines, Contains(HasSubstr("1,500 tokens/s, 1.500 TFLOP/s")));
  EXPECT_THAT(lines, Contains(HasSubstr("50.0 % of 3.000 TFLOP/s (a guess)")));
  EXPECT_THAT(lines, Contains(HasSubstr("forward 25.0 %, other 75.0 %")));
  EXPECT_THAT(lines, Contains(HasSubstr("2.00 GiB at most above the 1.00 at the start")));
}

TEST(Summary, SaysWhereCheckpointsAre) {
  RunTotals totals = totals_of_four();
  RunSummary run = summary_of(totals);
  EXPECT_THAT(summary_lines(run, false), Contains(HasSubstr("--checkpoint.enable saves them")));
  run.checkpoint_folder = "out/checkpoint";
  EXPECT_THAT(summary_lines(run, false), Contains(HasSubstr("none was saved")));
  totals.last_saved_step = 14;
  EXPECT_THAT(summary_lines(run, false), Contains(HasSubstr("out/checkpoint, the last is step-14")));
}

TEST(RunTotals, LeaveOutTheFirstStepWhereOthersFollow) {
  RunTotals totals;
  PhaseClock clock;
  clock.begin_step(1);
  totals.add(2.0, 100, clock);
  EXPECT_EQ(totals.trained.num_tokens, 100);
  totals.add(1.0, 200, clock);
  totals.add(1.0, 200, clock);
  EXPECT_EQ(totals.trained.num_tokens, 400);
  EXPECT_EQ(totals.losses.size(), 3u);
}

}  // namespace
}  // namespace milepost::train
