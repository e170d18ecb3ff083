#include "milepost/manager/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/test_steps.h"
#include "milepost/base/error.h"
#include "milepost/manager/pins.h"
#include "milepost/manager/steps.h"
#include "milepost/storage/staging.h"

namespace milepost::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

config::Checkpoint keeping(int64_t latest, int64_t every = 0) {
  config::Checkpoint options;
  options.keep_latest_k = latest;
  options.keep_every = every;
  return options;
}

std::vector<StepFacts> complete(std::initializer_list<int64_t> numbers) {
  std::vector<StepFacts> steps;
  for (const int64_t number : numbers) steps.push_back({number, true, true, false});
  return steps;
}

TEST(Retention, KeepsTheNewest) {
  EXPECT_THAT(steps_to_remove(complete({5, 30, 10, 20}), keeping(2)), ElementsAre(5, 10));
  EXPECT_THAT(steps_to_remove(complete({5, 10}), keeping(2)), IsEmpty());
  EXPECT_THAT(steps_to_remove(complete({5, 10, 20}), keeping(0)), IsEmpty());
  EXPECT_THAT(steps_to_remove({}, keeping(2)), IsEmpty());
}

TEST(Retention, KeepsWhatIsAskedFor) {
  std::vector<StepFacts> steps = complete({0, 5, 10, 15, 20, 25, 30});
  EXPECT_THAT(steps_to_remove(steps, keeping(2, 10)), ElementsAre(5, 15));
  steps[1].is_pinned = true;
  EXPECT_THAT(steps_to_remove(steps, keeping(2, 10)), ElementsAre(15));
  EXPECT_THAT(steps_to_remove(steps, keeping(2)), ElementsAre(0, 10, 15, 20));
}

TEST(Retention, CountsOnlyWhatIsCompleteAndRemovesOnlyOurs) {
  std::vector<StepFacts> steps = complete({5, 10, 20, 30, 40});
  steps[4].is_complete = false;  // does not count, so that 20 and 30 are the newest two
  steps[0].is_complete = false;
  EXPECT_THAT(steps_to_remove(steps, keeping(2)), ElementsAre(10));
  steps[1].is_ours = false;
  EXPECT_THAT(steps_to_remove(steps, keeping(2)), IsEmpty());
}

// A run's folder with a remover at work in it.
struct Folder {
  TestSteps steps;
  std::vector<std::string> info, warnings;

  void add_ours(int64_t step) {
    std::vector<std::string> parts(std::begin(kStateParts), std::end(kStateParts));
    steps.add(step, parts, /*is_ours=*/true);
  }
  void remove_old(const config::Checkpoint& options) {
    StepRemover remover(
        steps.where, options,
        [this](bool is_warning, std::string_view text) { (is_warning ? warnings : info).emplace_back(text); },
        nullptr);
    remover.look_again();
    remover.look_again();
    remover.close();
  }
  std::vector<int64_t> left() const { return list_steps(steps.where); }
};

TEST(Retention, RemovesInTheBackground) {
  Folder folder;
  for (const int64_t step : {10, 20, 30, 40}) folder.add_ours(step);
  folder.steps.add_full(5);                         // of another writer
  folder.steps.write("step-50/.metadata", "torn");  // complete it is not
  folder.steps.write("old-step-7/.metadata", "x");
  folder.steps.write("notes.txt", "mine");
  set_pin({folder.steps.where.storage, "/run/step-20"}, true);
  folder.remove_old(keeping(2));
  EXPECT_THAT(folder.left(), ElementsAre(5, 20, 30, 40, 50));
  EXPECT_TRUE(folder.steps.where.storage->stat("/run/old-step-7"));
  EXPECT_TRUE(folder.steps.where.storage->stat("/run/notes.txt"));
  EXPECT_THAT(folder.warnings, IsEmpty());
  EXPECT_THAT(folder.info, ElementsAre("Checkpointer is deleting /run/step-10.",
                                       HasSubstr("Checkpointer deleted /run/step-10 in ")));
}

TEST(Retention, CannotFailARun) {
  Folder folder;
  for (const int64_t step : {10, 20, 30}) folder.add_ours(step);
  // Another process writes to that step.
  const StagedOutput held(folder.steps.where.storage, "/run/step-10", StagedOutput::Kind::kDirectory, true);
  folder.remove_old(keeping(2));
  EXPECT_THAT(folder.left(), ElementsAre(10, 20, 30));
  EXPECT_THAT(folder.warnings, ElementsAre(HasSubstr("Checkpointer failed to delete /run/step-10: ")));
}

TEST(Retention, OfEverythingIsNoThread) {
  Folder folder;
  for (const int64_t step : {10, 20, 30}) folder.add_ours(step);
  folder.remove_old(keeping(0));
  EXPECT_THAT(folder.left(), ElementsAre(10, 20, 30));
  EXPECT_THAT(folder.info, IsEmpty());
}

}  // namespace
}  // namespace milepost::manager
