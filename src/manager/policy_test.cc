#include "milepost/manager/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"

namespace milepost::manager {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

config::Checkpoint enabled(int64_t interval) {
  config::Checkpoint options;
  options.enable = true;
  options.interval = interval;
  return options;
}

TEST(Policy, SavesAtIntervalsAndAtTheEnd) {
  const config::Checkpoint options = enabled(10);
  EXPECT_FALSE(should_save(options, 1, false));
  EXPECT_FALSE(should_save(options, 9, false));
  EXPECT_TRUE(should_save(options, 10, false));
  EXPECT_TRUE(should_save(options, 13, true));
  EXPECT_TRUE(should_save(options, 0, true));  // a seed checkpoint
}

TEST(Policy, SavesTheFirstStepWhenAsked) {
  config::Checkpoint options = enabled(10);
  options.enable_first_step_checkpoint = true;
  EXPECT_TRUE(should_save(options, 1, false));
  EXPECT_FALSE(should_save(options, 2, false));
}

TEST(Policy, NeverSavesWhenOffOrOnlyLoading) {
  config::Checkpoint options = enabled(1);
  options.load_only = true;
  options.enable_first_step_checkpoint = true;
  EXPECT_FALSE(should_save(options, 1, false));
  EXPECT_FALSE(should_save(options, 5, true));
  options.load_only = false;
  options.enable = false;
  EXPECT_FALSE(should_save(options, 5, true));
}

TEST(Policy, JoinsFolders) {
  config::Trainer config;
  config.dump_folder = "out/";
  config.checkpoint.folder = "checkpoint/";
  EXPECT_EQ(checkpoint_folder(config), "out/checkpoint");
  config.checkpoint.folder = "/elsewhere";
  EXPECT_EQ(checkpoint_folder(config), "/elsewhere");
  config.checkpoint.folder = "s3://bucket/run";
  EXPECT_EQ(checkpoint_folder(config), "s3://bucket/run");
  EXPECT_EQ(step_path("out/checkpoint", 7), "out/checkpoint/step-7");
}

std::string refusal(const config::Trainer& config) {
  try {
    check_supported(config);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

TEST(Policy, RefusesWhatThisVersionHasNot) {
  config::Trainer config;
  config.checkpoint = enabled(10);
  EXPECT_EQ(refusal(config), "");
  config.checkpoint.folder = "s3://bucket/run";
  EXPECT_THAT(refusal(config), HasSubstr("checkpoint.folder"));
  config.checkpoint.enable = false;
  EXPECT_EQ(refusal(config), "");
}

TEST(Policy, SaysWhatIsAskedForInVain) {
  config::Trainer config;
  EXPECT_THAT(check_supported(config), IsEmpty());
  config.checkpoint.initial_load_path = "/a/step-1";
  config.checkpoint.load_step = 5;
  const std::vector<Message> messages = check_supported(config);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].text,
            "checkpoint.load_step has no effect: checkpoints are off (--checkpoint.enable)");
  EXPECT_THAT(messages[1].text, HasSubstr("checkpoint.initial_load_path has no effect"));
  config.checkpoint.enable = true;
  EXPECT_THAT(check_supported(config), IsEmpty());
}

TEST(Policy, SaysWhereTheMovingAverageIsNotSaved) {
  config::Trainer config;
  config.ema_weights.enable = true;
  EXPECT_THAT(check_supported(config)[0].text, HasSubstr("checkpoint.enable is off"));
  config.checkpoint = enabled(10);
  config.checkpoint.last_save_model_only = true;
  EXPECT_THAT(check_supported(config)[0].text, HasSubstr("last_save_model_only is on"));
  config.checkpoint.last_save_model_only = false;
  EXPECT_THAT(check_supported(config), IsEmpty());
  config.training.dtype = "bfloat16";
  EXPECT_THAT(check_supported(config)[0].text, HasSubstr("kept in bfloat16"));
}

}  // namespace
}  // namespace milepost::manager
