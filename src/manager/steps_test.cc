#include "milepost/manager/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/test_steps.h"
#include "milepost/base/error.h"
#include "milepost/storage/faulty.h"

namespace milepost::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Step::Kind;

const std::vector<std::string> kAllParts(std::begin(kStateParts), std::end(kStateParts));

TEST(Steps, HaveExactNames) {
  EXPECT_EQ(step_number("step-0"), 0);
  EXPECT_EQ(step_number("step-120"), 120);
  for (const char* name : {"step-", "step-07", "step--1", "step-7.tmp", "old-step-7", "step-7x", "Step-7",
                           "step-+7", "step- 7", "step-99999999999999999999", ""}) {
    EXPECT_EQ(step_number(name), std::nullopt) << name;
  }
}

TEST(Steps, AreListedWithoutWhatOnlyLooksLikeThem) {
  TestSteps steps;
  steps.add_full(10);
  steps.add_full(9);
  steps.write("old-step-70/.metadata", "x");
  steps.write("step-80.tmp/.metadata", "x");
  steps.write("step-90/__0_0.distcp", "x");
  steps.write("step-100", "a file");
  steps.write("step-11/model.safetensors.index.json", "{}");
  EXPECT_THAT(list_steps(steps.where), ElementsAre(9, 10, 11));
  EXPECT_THAT(list_steps({steps.where.storage, "/nowhere"}), IsEmpty());
}

TEST(Steps, NewestThatCanBeResumedIsFound) {
  TestSteps steps;
  EXPECT_TRUE(survey_steps(steps.where, kAllParts).folder_exists);
  EXPECT_FALSE(survey_steps({steps.where.storage, "/nowhere"}, kAllParts).folder_exists);
  steps.add_full(5);
  steps.add_full(10);
  steps.add(12, {});
  steps.add(14, {"optimizer", "train_state"});
  const Survey found = survey_steps(steps.where, kAllParts);
  ASSERT_TRUE(found.newest);
  EXPECT_EQ(found.newest->number, 10);
  ASSERT_EQ(found.passed_over.size(), 2);
  EXPECT_EQ(found.passed_over[0].number, 14);
  EXPECT_EQ(found.passed_over[0].why, "it holds no lr_scheduler and no dataloader");
  EXPECT_EQ(found.passed_over[1].why,
            "it holds no optimizer, no lr_scheduler, no dataloader and no train_state");
  EXPECT_EQ(found.passed_over[1].kind, Kind::kModelOnly);
}

TEST(Steps, PartsThatAreLeftOutAreNotNeeded) {
  TestSteps steps;
  steps.add_full(5);
  steps.add(14, {"optimizer", "train_state"});
  EXPECT_EQ(survey_steps(steps.where, {"optimizer", "train_state"}).newest->number, 14);
}

TEST(Steps, StepZeroOnlyNeedsTheModel) {
  TestSteps steps;
  steps.add(0, {});
  EXPECT_EQ(survey_steps(steps.where, kAllParts).newest->number, 0);
}

TEST(Steps, SavesOfHuggingFaceAreNotResumed) {
  TestSteps steps;
  steps.add_full(5);
  steps.write("step-6/model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{}}");
  const Survey found = survey_steps(steps.where, kAllParts);
  EXPECT_EQ(found.newest->number, 5);
  EXPECT_EQ(found.passed_over[0].number, 6);
}

TEST(Steps, DamagedOnesAreNotResumed) {
  TestSteps steps;
  steps.add_full(5);
  steps.write("step-6/.metadata", "\x80\x04 cut");
  steps.add_full(7);
  steps.where.storage->remove_file("/run/step-7/__0_0.distcp");
  steps.add_full(8);
  steps.write("step-8/__0_0.distcp", "short");
  const Survey found = survey_steps(steps.where, kAllParts);
  EXPECT_EQ(found.newest->number, 5);
  ASSERT_EQ(found.passed_over.size(), 3);
  for (const Step& step : found.passed_over) EXPECT_EQ(step.kind, Kind::kDamaged) << step.number;
  EXPECT_THAT(found.passed_over[0].why, HasSubstr("__0_0.distcp has 5 bytes"));
  EXPECT_THAT(found.passed_over[1].why, HasSubstr("__0_0.distcp is missing"));
}

TEST(Steps, ThoseThatTheDiskDoesNotGiveBackAreNotResumed) {
  TestSteps steps;
  for (const int64_t step : {5, 6, 7}) steps.add_full(step);
  // The index of step 7 is opened first; `read` is of its bytes, `stat` of what lies in its folder.
  for (const char* fault : {"fail=open:1:EIO", "fail=read:1:EIO", "fail=open:1:ESTALE"}) {
    const StorageLocation faulty{faulty_storage(steps.where.storage, parse_faults(fault)), steps.where.path};
    const Survey found = survey_steps(faulty, kAllParts);
    ASSERT_TRUE(found.newest) << fault;
    EXPECT_EQ(found.newest->number, 6) << fault;
    EXPECT_EQ(found.passed_over[0].kind, Kind::kDamaged);
    EXPECT_THAT(found.passed_over[0].why, HasSubstr("it cannot be read: /run/step-7/.metadata: "));
  }
  for (const char* fault : {"fail=open:1:EACCES", "fail=open:1:EMFILE"}) {
    const StorageLocation faulty{faulty_storage(steps.where.storage, parse_faults(fault)), steps.where.path};
    EXPECT_THROW(survey_steps(faulty, kAllParts), StorageError) << fault;
  }
}

TEST(Steps, AFolderThatTheDiskDoesNotGiveBackIsADamagedStep) {
  TestSteps steps;
  for (const int64_t step : {5, 6}) steps.add_full(step);
  int passed_over = 0;
  for (int64_t call = 1; call <= 6; ++call) {
    const std::vector<Fault> faults = {{"stat", call, EIO}};
    try {
      const Survey found =
          survey_steps({faulty_storage(steps.where.storage, faults), steps.where.path}, kAllParts);
      passed_over += static_cast<int>(found.passed_over.size());
      EXPECT_TRUE(found.newest) << call;
    } catch (const StorageError& error) {
      EXPECT_EQ(error.path(), "/run") << call;  // without the run's own folder there is nothing to say
    }
  }
  EXPECT_GT(passed_over, 0);
}

TEST(Steps, PartsWithoutAModelAreNone) {
  TestSteps steps;
  steps.add_full(5);
  SnapshotBuilder builder;
  builder.add_object("optimizer.x", builder.values().integer(1));
  const Snapshot snapshot = std::move(builder).finish();
  save_dcp({steps.where.storage, "/run/step-6"}, {snapshot.plan}, {snapshot.checkpoint}, {}, false);
  const Survey found = survey_steps(steps.where, {"optimizer"});
  EXPECT_EQ(found.newest->number, 5);
  EXPECT_EQ(found.passed_over[0].kind, Kind::kNoModel);
  EXPECT_EQ(found.passed_over[0].why, "it holds no model");
}

TEST(Steps, NamedOnesAreLookedUpWithTheOthersThatAreThere) {
  TestSteps steps;
  steps.add_full(5);
  steps.add(7, {});
  steps.add(0, {});
  steps.write("step-9", "a file");
  EXPECT_EQ(look_up_step(steps.where, 5, kAllParts).step->kind, Kind::kFull);
  EXPECT_THAT(look_up_step(steps.where, 5, kAllParts).there, IsEmpty());  // nothing else is looked at
  EXPECT_THAT(look_up_step(steps.where, 5, kAllParts).newer, ElementsAre(7));
  EXPECT_EQ(look_up_step(steps.where, 7, kAllParts).step->kind, Kind::kModelOnly);
  EXPECT_EQ(look_up_step(steps.where, 0, kAllParts).step->kind, Kind::kFull);
  for (const int64_t absent : {6, 9}) {
    const NamedStep found = look_up_step(steps.where, absent, kAllParts);
    EXPECT_TRUE(found.folder_exists && !found.step) << absent;
    EXPECT_THAT(found.there, ElementsAre(0, 5, 7));
  }
  EXPECT_FALSE(look_up_step({steps.where.storage, "/nowhere"}, 5, kAllParts).folder_exists);
}

TEST(Steps, OlderOnesComeWhenTheNewestIsFoundDamaged) {
  TestSteps steps;
  for (const int64_t step : {0, 5, 7, 8}) steps.add_full(step);
  steps.write("step-7/__0_0.distcp", "short");
  Survey found = survey_steps(steps.where, kAllParts);
  EXPECT_EQ(found.newest->number, 8);
  pass_over_newest(steps.where, kAllParts, "why", &found);
  EXPECT_EQ(found.newest->number, 5);
  ASSERT_EQ(found.passed_over.size(), 2);
  EXPECT_EQ(found.passed_over[0].number, 8);
  EXPECT_EQ(found.passed_over[0].kind, Kind::kDamaged);
  EXPECT_EQ(found.passed_over[0].why, "why");
  pass_over_newest(steps.where, kAllParts, "", &found);
  EXPECT_EQ(found.newest->number, 0);
  pass_over_newest(steps.where, kAllParts, "", &found);
  EXPECT_FALSE(found.newest);
  EXPECT_EQ(found.passed_over.size(), 4);
}

TEST(Steps, OwnOnesSaySo) {
  TestSteps steps;
  steps.add(1, {"optimizer"});
  const auto open = [&](int64_t step) {
    return Checkpoint::open(StorageLocation{steps.where.storage, step_path("/run", step)});
  };
  EXPECT_FALSE(is_own(*open(1)));
  SnapshotBuilder builder;
  builder.add_object(std::string(kRunKey), builder.values().string("{}"));
  const Snapshot snapshot = std::move(builder).finish();
  save_dcp({steps.where.storage, "/run/step-2"}, {snapshot.plan}, {snapshot.checkpoint}, {}, false);
  EXPECT_TRUE(is_own(*open(2)));
}

}  // namespace
}  // namespace milepost::manager
