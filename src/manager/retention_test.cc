#include "milepost/manager/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>

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

std::vector<StepFacts> full(std::initializer_list<int64_t> numbers) {
  std::vector<StepFacts> steps;
  for (const int64_t number : numbers) steps.push_back({number, true, true, false});
  return steps;
}

// A run that has got this far on its own.
RunSteps up_to(int64_t step) { return {step, {}}; }

TEST(Retention, KeepsTheNewest) {
  EXPECT_THAT(steps_to_remove(full({5, 30, 10, 20}), up_to(99), keeping(2)), ElementsAre(5, 10));
  EXPECT_THAT(steps_to_remove(full({5, 10}), up_to(99), keeping(2)), IsEmpty());
  EXPECT_THAT(steps_to_remove(full({5, 10, 20}), up_to(99), keeping(0)), IsEmpty());
  EXPECT_THAT(steps_to_remove({}, up_to(99), keeping(2)), IsEmpty());
}

TEST(Retention, KeepsWhatIsAskedFor) {
  std::vector<StepFacts> steps = full({0, 5, 10, 15, 20, 25, 30});
  EXPECT_THAT(steps_to_remove(steps, up_to(99), keeping(2, 10)), ElementsAre(5, 15));
  steps[1].is_pinned = true;
  EXPECT_THAT(steps_to_remove(steps, up_to(99), keeping(2, 10)), ElementsAre(15));
  EXPECT_THAT(steps_to_remove(steps, up_to(99), keeping(2)), ElementsAre(0, 10, 15, 20));
}

TEST(Retention, CountsOnlyWhatIsFullAndRemovesOnlyOurs) {
  std::vector<StepFacts> steps = full({5, 10, 20, 30, 40});
  steps[4].is_full = false;  // does not count, so that 20 and 30 are the newest two
  steps[0].is_full = false;
  EXPECT_THAT(steps_to_remove(steps, up_to(99), keeping(2)), ElementsAre(10));
  steps[1].is_ours = false;
  EXPECT_THAT(steps_to_remove(steps, up_to(99), keeping(2)), IsEmpty());
}

TEST(Retention, CountsTheStepsOfTheRun) {
  const auto removed = [](std::initializer_list<int64_t> in_folder, const RunSteps& run) {
    return steps_to_remove(full(in_folder), run, keeping(2));
  };
  EXPECT_THAT(removed({10, 20, 30}, {-1, {10, 20, 30}}), ElementsAre(10)) << "nothing but its own";
  EXPECT_THAT(removed({10, 20, 30}, {20, {30}}), ElementsAre(10)) << "went on from 20";
  EXPECT_THAT(removed({10, 20}, {10, {20}}), IsEmpty()) << "what it began with is one of two";
  EXPECT_THAT(removed({10, 20, 30}, {10, {20, 30}}), ElementsAre(10)) << "there are two newer ones";
  EXPECT_THAT(removed({10, 30}, {10, {20, 30}}), IsEmpty()) << "one of these was lost";
  EXPECT_THAT(removed({10, 20, 1}, {0, {1}}), IsEmpty()) << "counts its steps from 0 again";
}

TEST(Retention, CountsNoNewerStepsThatWerePassedOver) {
  const auto removed = [](const RunSteps& run) {
    return steps_to_remove(full({300, 350, 400, 500}), run, keeping(2));
  };
  EXPECT_THAT(removed({300, {350}}), IsEmpty());
  EXPECT_THAT(removed({300, {350, 400}}), ElementsAre(300)) << "400 was saved anew";
  EXPECT_THAT(removed({350, {}}), IsEmpty()) << "stopped after 350, and begun again";
}

TEST(Retention, CountsNoStepsOfATrainingThatWasRolledBack) {
  const auto removed = [](std::initializer_list<int64_t> in_folder, const RunSteps& run) {
    return steps_to_remove(full(in_folder), run, keeping(2));
  };
  EXPECT_THAT(removed({90, 100, 110, 120, 200}, {100, {110}}), ElementsAre(90));
  const auto others = {100L, 110L, 120L, 125L, 130L, 150L};  // whose numbers are no multiples of 25
  EXPECT_THAT(removed(others, {100, {125}}), IsEmpty());
  EXPECT_THAT(removed(others, {100, {125, 150}}), ElementsAre(100));
}

// A run's folder with a remover at work in it.
struct Folder {
  TestSteps steps;
  std::vector<std::string> info, warnings;
  std::function<void(std::string_view)> on_line = {};  // called on the removing thread

  void add_ours(int64_t step) {
    std::vector<std::string> parts(std::begin(kStateParts), std::end(kStateParts));
    steps.add(step, parts, /*is_ours=*/true);
  }
  void add_ours(std::initializer_list<int64_t> numbers) {
    for (const int64_t number : numbers) add_ours(number);
  }
  void remove_old(const config::Checkpoint& options, const RunSteps& run) {
    StepRemover remover(
        steps.where, options,
        [this](bool is_warning, std::string_view text) {
          (is_warning ? warnings : info).emplace_back(text);
          if (on_line) on_line(text);
        },
        nullptr);
    remover.begin_with(run.began_with);
    for (const int64_t step : run.published) remover.look_again(step);
    remover.close();
  }
  std::vector<int64_t> left() const { return list_steps(steps.where); }
};

TEST(Retention, RemovesInTheBackground) {
  Folder folder;
  folder.add_ours({10, 20, 30, 40});
  folder.steps.add_full(5);                         // of another writer
  folder.steps.write("step-50/.metadata", "torn");  // complete it is not
  folder.steps.write("old-step-7/.metadata", "x");
  folder.steps.write("notes.txt", "mine");
  set_pin({folder.steps.where.storage, "/run/step-20"}, true);
  folder.remove_old(keeping(2), {20, {30, 40}});
  EXPECT_THAT(folder.left(), ElementsAre(5, 20, 30, 40, 50));
  EXPECT_TRUE(folder.steps.where.storage->stat("/run/old-step-7"));
  EXPECT_TRUE(folder.steps.where.storage->stat("/run/notes.txt"));
  EXPECT_THAT(folder.warnings, IsEmpty());
  EXPECT_THAT(folder.info, ElementsAre("Checkpointer is deleting /run/step-10.",
                                       HasSubstr("Checkpointer deleted /run/step-10 in ")));
}

TEST(Retention, CannotFailARun) {
  Folder folder;
  folder.add_ours({10, 20, 30});
  // Another process writes to that step.
  const StagedOutput held(folder.steps.where.storage, "/run/step-10", StagedOutput::Kind::kDirectory, true);
  folder.remove_old(keeping(2), {20, {30}});
  EXPECT_THAT(folder.left(), ElementsAre(10, 20, 30));
  EXPECT_THAT(folder.warnings, ElementsAre(HasSubstr("Checkpointer failed to delete /run/step-10: ")));
}

// keep_latest_k = 2: what has only the model, or files of another size, takes no place of a full one.
TEST(Retention, CountsWhatTrainingCouldGoOnFrom) {
  Folder folder;
  folder.add_ours({10, 20, 40});
  folder.steps.add(30, {});                         // only the model
  folder.steps.write("step-40/__0_0.distcp", "x");  // cut short
  folder.remove_old(keeping(2), {30, {40}});
  EXPECT_THAT(folder.left(), ElementsAre(10, 20, 30, 40));
  folder.add_ours({50});
  folder.remove_old(keeping(2), {30, {40, 50}});
  EXPECT_THAT(folder.left(), ElementsAre(20, 30, 40, 50));
}

TEST(Retention, LeavesTheStepsOfATrainingThatWasRolledBack) {
  Folder folder;
  folder.add_ours({80, 90, 100, 110, 120, 130});
  folder.remove_old(keeping(2), {100, {110}});
  EXPECT_THAT(folder.left(), ElementsAre(100, 110, 120, 130));
}

// Between the look at it and its removal.
TEST(Retention, LeavesAStepThatIsPinnedAtTheLastMoment) {
  Folder folder;
  folder.add_ours({10, 20, 30});
  folder.on_line = [&](std::string_view text) {
    if (text == "Checkpointer is deleting /run/step-10.")
      set_pin({folder.steps.where.storage, "/run/step-10"}, true);
  };
  folder.remove_old(keeping(2), {20, {30}});
  EXPECT_THAT(folder.left(), ElementsAre(10, 20, 30));
  EXPECT_TRUE(is_pinned({folder.steps.where.storage, "/run/step-10"}));
  EXPECT_THAT(folder.info, ElementsAre(testing::_, "/run/step-10 has been pinned: it stays."));
  EXPECT_THAT(folder.warnings, IsEmpty());
  EXPECT_EQ(folder.steps.where.storage->list("/run").size(), 3U);  // no staging folder
}

TEST(Retention, LeavesAStepThatHoldsMoreThanACheckpointAndSaysSoOnce) {
  Folder folder;
  folder.add_ours({10, 20, 30, 40});
  folder.steps.write("step-10/notes.txt", "mine");
  std::vector<std::string> warnings;
  std::promise<void> warned;
  StepRemover remover(
      folder.steps.where, keeping(2),
      [&](bool is_warning, std::string_view text) {
        if (!is_warning) return;
        warnings.emplace_back(text);
        if (warnings.size() == 1) warned.set_value();
      },
      nullptr);
  remover.begin_with(20);
  remover.look_again(30);
  warned.get_future().wait();
  remover.look_again(40);
  remover.close();
  EXPECT_THAT(folder.left(), ElementsAre(10, 30, 40));
  EXPECT_THAT(warnings,
              ElementsAre("Checkpointer failed to delete /run/step-10: it holds 'notes.txt', which is "
                          "no part of a checkpoint. Skipping."));
}

TEST(Retention, OfEverythingIsNoThread) {
  Folder folder;
  folder.add_ours({10, 20, 30});
  folder.remove_old(keeping(0), {20, {30}});
  EXPECT_THAT(folder.left(), ElementsAre(10, 20, 30));
  EXPECT_THAT(folder.info, IsEmpty());
}

}  // namespace
}  // namespace milepost::manager
