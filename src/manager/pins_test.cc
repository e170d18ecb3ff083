#include "milepost/manager/pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/test_steps.h"
#include "milepost/base/error.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/engine/verify.h"
#include "milepost/manager/steps.h"
#include "milepost/storage/staging.h"

namespace milepost::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Pins, AreSetListedAndTakenAway) {
  TestSteps steps;
  steps.add_full(5);
  steps.add_full(10);
  const StorageLocation step{steps.where.storage, "/run/step-5"};
  EXPECT_FALSE(is_pinned(step));
  EXPECT_TRUE(set_pin(step, true));
  EXPECT_FALSE(set_pin(step, true));
  EXPECT_TRUE(is_pinned(step));
  EXPECT_THAT(pinned_steps(steps.where), ElementsAre(5));
  EXPECT_TRUE(set_pin(step, false));
  EXPECT_THAT(pinned_steps(steps.where), IsEmpty());
  EXPECT_FALSE(is_pinned({steps.where.storage, "/run/step-99"}));
}

TEST(Pins, AreOfStepsOnly) {
  TestSteps steps;
  steps.write("old-step-7/.metadata", "x");
  steps.write("step-8/note.txt", "x");
  for (const char* name : {"/run", "/run/old-step-7", "/run/step-8", "/run/step-9"}) {
    EXPECT_THROW(set_pin({steps.where.storage, name}, true), ValueError) << name;
  }
}

TEST(Pins, DisturbNeitherManifestNorReaders) {
  TestSteps steps;
  steps.add_full(5);
  const StorageLocation step{steps.where.storage, "/run/step-5"};
  set_pin(step, true);
  const manifest::Hashes hashes = write_manifest(step, {});
  EXPECT_EQ(hashes.size(), 2U);
  set_pin(step, false);
  EXPECT_TRUE(check_manifest(step, {}).good());
  set_pin(step, true);
  EXPECT_THAT(check_manifest(step, {}).extra, IsEmpty());
  EXPECT_EQ(classify_step(steps.where, 5, {"optimizer"}).kind, Step::Kind::kFull);
}

TEST(Pins, KeepAStepFromBeingReplaced) {
  TestSteps steps;
  steps.add_full(5);
  set_pin({steps.where.storage, "/run/step-5"}, true);
  EXPECT_THROW(StagedOutput(steps.where.storage, "/run/step-5", StagedOutput::Kind::kDirectory, true),
               ValueError);
}

}  // namespace
}  // namespace milepost::manager
