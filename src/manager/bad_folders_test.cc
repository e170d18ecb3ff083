// The folders of runs in tests/data/bad, from what lies there to what a run does; their README.md says what
// is right. The trainer's own tests of them are in train/state/bad_folders_test.cc and tests/cli.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/manager/start.h"

namespace milepost::manager {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = Step::Kind;

StorageLocation bad(const std::string& name) {
  return {posix_storage(), std::string(MILEPOST_TEST_DATA "/bad/") + name + "/checkpoint"};
}

Start newest(const StorageLocation& folder, const std::vector<std::string>& parts) {
  return choose_start({}, folder.path, "", survey_steps(folder, parts));
}

Start named(const StorageLocation& folder, int64_t number, const std::vector<std::string>& parts) {
  return choose_named_step({}, folder.path, number, look_up_step(folder, number, parts));
}

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Only the step counter lies beside the model there.
const std::vector<std::string> kCounter = {"train_state"};

TEST(BadFolders, TheLatestOfStepsBasicIsTen) {
  const StorageLocation folder = bad("steps-basic");
  const Start start = newest(folder, kCounter);
  EXPECT_EQ(start.step, 10);
  EXPECT_EQ(start.source, Start::Source::kOwnStep);
  EXPECT_EQ(named(folder, 9, kCounter).path, folder.path + "/step-9");
}

TEST(BadFolders, StepHundredOfStepsBasicIsIncompleteAndElevenIsNot) {
  const StorageLocation folder = bad("steps-basic");
  const NamedStep found = look_up_step(folder, 100, kCounter);
  ASSERT_TRUE(found.step);
  EXPECT_EQ(found.step->kind, Kind::kDamaged);
  EXPECT_THAT(found.step->why, HasSubstr("incomplete"));
  // Which the load says: verification may have more to tell.
  const Start start = named(folder, 100, kCounter);
  EXPECT_THAT(error_of([&] { Checkpoint::open(start.path); }),
              AllOf(HasSubstr("/step-100: "), HasSubstr("incomplete: .metadata is missing")));
  EXPECT_THAT(error_of([&] { named(folder, 11, kCounter); }),
              AllOf(HasSubstr("load_step=11 not found at " + folder.path + "/step-11"),
                    HasSubstr("there are step-10, step-9")));
}

// Its tenth step has no loader's state.
const std::vector<std::string> kWithoutLoader = {"optimizer", "lr_scheduler", "train_state"};

TEST(BadFolders, AModelOnlyStepIsPassedOverInALineThatSaysHowToUseIt) {
  const StorageLocation folder = bad("resume-from-model-only");
  const Start start = newest(folder, kWithoutLoader);
  EXPECT_EQ(start.step, 10);
  ASSERT_EQ(start.messages.size(), 1u);
  EXPECT_TRUE(start.messages[0].is_warning);
  EXPECT_EQ(
      start.messages[0].text,
      "step-20 is not resumed from: it holds no optimizer, no lr_scheduler and no train_state; to start a "
      "new run from its weights, give --checkpoint.initial-load-path " +
          folder.path + "/step-20 and another --checkpoint.folder");
}

TEST(BadFolders, AModelOnlyStepThatIsNamedIsAnErrorThatSaysTheSame) {
  const StorageLocation folder = bad("resume-from-model-only");
  EXPECT_THAT(
      error_of([&] { named(folder, 20, kWithoutLoader); }),
      AllOf(HasSubstr("load_step=20 cannot be resumed from: it holds no optimizer, no lr_scheduler and no "
                      "train_state"),
            HasSubstr("--checkpoint.initial-load-path " + folder.path + "/step-20"),
            HasSubstr("there are step-20, step-10")));
  EXPECT_EQ(named(folder, 10, kWithoutLoader).step, 10);
}

}  // namespace
}  // namespace milepost::manager
