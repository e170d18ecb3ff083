#include "train/state/job_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/state/test_job.h"

namespace milepost::train {
namespace {

using ::testing::StartsWith;

TEST(JobImage, IsThatOfTheJobUntilABitChanges) {
  TinyJob tiny;
  tiny.step();
  const JobImage image(tiny.job);
  EXPECT_EQ(image.num_tensors(), 4 + 2 * 3);
  EXPECT_EQ(image.difference(tiny.job), "");

  const at::NoGradGuard no_grad;
  tiny.model.counts_.local[1] = 7.5;  // no checkpoint has it
  EXPECT_THAT(image.difference(tiny.job),
              StartsWith("layers.0.tokens_per_expert_E, element [1] of this rank's part: "));
}

TEST(JobImage, KnowsMinusZeroFromZero) {
  TinyJob tiny;
  tiny.optimizer.materialize();
  const JobImage image(tiny.job);
  tiny.optimizer.groups()[0].moments[0].exp_avg.index({7, 2}).neg_();
  EXPECT_EQ(image.difference(tiny.job),
            "optimizer.state.qkv.wqkv.exp_avg, element [7, 2] of this rank's part: 0 and -0");
}

TEST(JobImage, HoldsNumbersAndTheStateOfRandomNumbers) {
  TinyJob tiny;
  const JobImage image(tiny.job);
  tiny.train.step = 3;
  EXPECT_EQ(image.difference(tiny.job), "train_state.step: 0 and 3");
  tiny.train.step = 0;
  at::randn({4});
  EXPECT_THAT(image.difference(tiny.job),
              StartsWith("milepost.rng.rank_0: 5056 and 5056 bytes that differ from byte "));
}

}  // namespace
}  // namespace milepost::train
