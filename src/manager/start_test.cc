#include "milepost/manager/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"

namespace milepost::manager {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = Step::Kind;
using Source = Start::Source;

const std::string kFolder = "/run/checkpoint";

Survey own(int64_t step) {
  Survey found;
  found.folder_exists = true;
  found.newest = Step{step, Kind::kFull, ""};
  return found;
}

Start start_of(const config::Checkpoint& options, const Survey& found) {
  return choose_start(options, kFolder, "/assets", found);
}

std::string text_of(const Start& start) {
  std::string text;
  for (const Message& message : start.messages) text += message.text + "\n";
  return text;
}

TEST(Start, IsFreshWithoutAnything) {
  const Start start = start_of({}, {});
  EXPECT_EQ(start.source, Source::kFresh);
  EXPECT_THAT(text_of(start), HasSubstr("this is a fresh start"));
}

TEST(Start, OwnFolderWinsOverTheInitialPath) {
  config::Checkpoint options;
  options.initial_load_path = "/weights";
  const Start start = start_of(options, own(20));
  EXPECT_EQ(start.source, Source::kOwnStep);
  EXPECT_EQ(start.path, "/run/checkpoint/step-20");
  EXPECT_FALSE(start.model_only);
  EXPECT_THAT(text_of(start), HasSubstr("/weights is ignored"));
}

TEST(Start, StepZeroIsTheModelOnly) { EXPECT_TRUE(start_of({}, own(0)).model_only); }

NamedStep named(Step::Kind kind, const std::string& why) { return {true, Step{7, kind, why}, {5, 7}}; }

TEST(Start, ANamedStepIsTakenUnlessItLacksSomething) {
  for (const Kind kind : {Kind::kFull, Kind::kDamaged}) {
    const Start start = choose_named_step({}, kFolder, 7, named(kind, "its file a is missing"));
    EXPECT_EQ(start.path, "/run/checkpoint/step-7");
    EXPECT_EQ(start.step, 7);
    EXPECT_THAT(start.messages, IsEmpty());
  }
}

TEST(Start, SaysWhichStepsAreNewerThanANamedOne) {
  NamedStep found = named(Kind::kFull, "");
  found.newer = {8, 12};
  const Start start = choose_named_step({}, kFolder, 7, found);
  ASSERT_EQ(start.messages.size(), 1U);
  EXPECT_TRUE(start.messages[0].is_warning);
  EXPECT_THAT(start.messages[0].text, HasSubstr("step-12, step-8 stay beside the steps to come"));
}

std::string refusal_of_named(const NamedStep& found) {
  try {
    choose_named_step({}, kFolder, 7, found);
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "nothing was refused";
}

TEST(Start, ANamedStepNeedsTheFolder) {
  EXPECT_THAT(refusal_of_named({}),
              AllOf(HasSubstr("not_found: "),
                    HasSubstr("--checkpoint.load_step=7 not found because checkpoint.folder "
                              "/run/checkpoint does not exist")));
}

TEST(Start, WhereANamedStepIsNotThoseThatAreThereAreListed) {
  EXPECT_THAT(refusal_of_named({true, std::nullopt, {9, 10}}),
              AllOf(HasSubstr("not_found: "),
                    HasSubstr("--checkpoint.load_step=7 not found at /run/checkpoint/step-7; "
                              "there are step-10, step-9")));
  EXPECT_THAT(refusal_of_named({true, std::nullopt, {}}), HasSubstr("there are no steps"));
}

TEST(Start, ANamedStepWithoutAStateIsRefusedWithWhatElseCanBeDone) {
  EXPECT_THAT(
      refusal_of_named(named(Kind::kModelOnly, "it holds no optimizer")),
      AllOf(
          HasSubstr("/run/checkpoint/step-7: --checkpoint.load_step=7 cannot be resumed from: it holds no "
                    "optimizer; "),
          HasSubstr("--checkpoint.initial-load-path /run/checkpoint/step-7 and another --checkpoint.folder"),
          HasSubstr("--checkpoint.exclude-from-loading"), HasSubstr("there are step-7, step-5")));
  EXPECT_THAT(refusal_of_named(named(Kind::kHuggingFace, "it holds safetensors")),
              AllOf(HasSubstr("step-7 --checkpoint.initial-load-in-hf and"),
                    Not(HasSubstr("--checkpoint.exclude-from-loading"))));
  EXPECT_THAT(refusal_of_named(named(Kind::kNoModel, "it holds no model")),
              Not(HasSubstr("initial-load-path")));
}

TEST(Start, InitialPathsBringTheirOptions) {
  config::Checkpoint options;
  options.initial_load_path = "/weights";
  Start start = start_of(options, {});
  EXPECT_EQ(start.source, Source::kInitialPath);
  EXPECT_TRUE(start.model_only);
  EXPECT_FALSE(start.from_hf);
  options.initial_load_in_hf = options.initial_load_in_hf_quantized = true;
  start = start_of(options, {});
  EXPECT_TRUE(start.from_hf && start.quantised);
  EXPECT_THAT(text_of(start),
              HasSubstr("Loading from HF safetensors from --checkpoint.initial_load_path: /weights"));
  options.initial_load_model_only = false;
  EXPECT_THROW(start_of(options, {}), config::LaunchError);
}

TEST(Start, HuggingFaceWeightsMayLieAmongTheAssets) {
  config::Checkpoint options;
  options.initial_load_in_hf = true;
  const Start start = start_of(options, {});
  EXPECT_EQ(start.source, Source::kHfAssets);
  EXPECT_EQ(start.path, "/assets");
  EXPECT_THROW(choose_start(options, kFolder, "", {}), config::LaunchError);
}

TEST(Start, SaysWhyNewerStepsAreNotTaken) {
  Survey found = own(10);
  found.passed_over = {{30, Kind::kModelOnly, "it holds no optimizer"}};
  const Start start = start_of({}, found);
  ASSERT_FALSE(start.messages.empty());
  EXPECT_TRUE(start.messages[0].is_warning);
  EXPECT_EQ(start.messages[0].text,
            "step-30 is not resumed from: it holds no optimizer; to start a new run from its weights, give "
            "--checkpoint.initial-load-path /run/checkpoint/step-30 and another --checkpoint.folder");
  found.passed_over = {{30, Kind::kDamaged, "its file a is missing"}};
  EXPECT_EQ(start_of({}, found).messages[0].text, "step-30 is not resumed from: its file a is missing");
}

std::string refusal_of(const config::Checkpoint& options, const Survey& found) {
  try {
    start_of(options, found);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Start, DoesNotBeginAnewBesideFinishedWork) {
  Survey found;
  found.folder_exists = true;
  found.passed_over = {{30, Kind::kModelOnly, "it holds no optimizer"}};
  const std::string text = refusal_of({}, found);
  EXPECT_THAT(text, HasSubstr("step-30: it holds no optimizer"));
  EXPECT_THAT(text, AllOf(HasSubstr("--checkpoint.exclude-from-loading"), Not(HasSubstr("damaged"))));
  config::Checkpoint options;
  options.initial_load_path = "/weights";
  EXPECT_EQ(start_of(options, found).source, Source::kInitialPath);
}

TEST(Start, DoesNotBeginAnewOverDamagedSteps) {
  Survey found;
  found.folder_exists = true;
  found.passed_over = {{20, Kind::kDamaged, "its file a is missing"}, {10, Kind::kDamaged, "it is short"}};
  config::Checkpoint with_initial;
  with_initial.initial_load_path = "/weights";
  for (const config::Checkpoint& options : {config::Checkpoint{}, with_initial}) {
    const std::string text = refusal_of(options, found);
    EXPECT_THAT(text, HasSubstr("/run/checkpoint: no checkpoint here can be resumed from:\n"
                                "  step-20: its file a is missing\n  step-10: it is short"));
    EXPECT_THAT(text, AllOf(HasSubstr("restore the damaged files"), HasSubstr("--checkpoint.folder")));
    EXPECT_THAT(text, Not(HasSubstr("--checkpoint.exclude-from-loading")));
  }
  found.newest = Step{5, Kind::kFull, ""};
  EXPECT_EQ(start_of({}, found).step, 5);
}

TEST(Start, MustBeAFolder) {
  Start start;
  start.path = "/no/such/folder";
  EXPECT_NO_THROW(require_present(start));
  start.source = Source::kOwnStep;
  EXPECT_THROW(require_present(start), StorageError);
  start.source = Source::kInitialPath;
  EXPECT_THROW(require_present(start), ValueError);
  start.source = Source::kHfAssets;
  EXPECT_THROW(require_present(start), ValueError);
}

TEST(Start, ExcludedPartsAreNotLoaded) {
  config::Checkpoint options;
  options.exclude_from_loading = {"lr_scheduler", "dataloader", "ema_optimizer"};
  EXPECT_NO_THROW(check_excluded(options));
  EXPECT_THAT(parts_to_load(options), ElementsAre("optimizer", "train_state"));
  for (const char* name : {"data_loader", ""}) {
    options.exclude_from_loading = {name};
    try {
      check_excluded(options);
      FAIL();
    } catch (const ValueError& error) {
      EXPECT_EQ(error.summary(), std::string(name) + " not found in state_dict.");
    }
  }
}

}  // namespace
}  // namespace milepost::manager
