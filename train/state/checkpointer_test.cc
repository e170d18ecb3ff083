#include "train/state/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "milepost/base/error.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/engine/load.h"
#include "milepost/manager/pins.h"
#include "milepost/storage/staging.h"
#include "train/state/job_snapshot.h"
#include "train/state/test_job.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointerTest : public testing::Test {
 protected:
  CheckpointerTest() {
    std::string folder = testing::TempDir() + "/milepost-state-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw errno;
    config.dump_folder = folder;
    config.checkpoint.enable = true;
    config.checkpoint.interval = 2;
    config.checkpoint.last_save_model_only = false;
    at::manual_seed(1);
  }
  ~CheckpointerTest() override { std::filesystem::remove_all(config.dump_folder); }

  LogLine log() {
    return [this](bool is_warning, std::string_view text) {
      const std::lock_guard lock(mutex);
      lines += std::string(is_warning ? "WARNING " : "") + std::string(text) + "\n";
    };
  }
  std::string path(const std::string& name) const { return config.dump_folder + "/checkpoint/" + name; }

  config::Trainer config;
  std::mutex mutex;
  std::string lines;  // GUARDED_BY(mutex) while a checkpointer lives
};

// Steps 1 to 5 with a checkpoint after each second one.
void run_five(TinyJob& job, Checkpointer& checkpoints) {
  for (int64_t step = 1; step <= 5; ++step) {
    job.step();
    checkpoints.save(step, false);
  }
}

TEST_F(CheckpointerTest, GoesOnToTheBit) {
  TinyJob whole;
  Checkpointer checkpoints(config, whole.job, log());
  EXPECT_FALSE(checkpoints.load(-1));
  run_five(whole, checkpoints);

  at::manual_seed(99);
  TinyJob resumed;
  Checkpointer again(config, resumed.job, log());
  EXPECT_TRUE(again.load(-1));
  EXPECT_EQ(resumed.train.step, 4);
  EXPECT_EQ(resumed.train.ntokens_seen, 4 * 128);
  EXPECT_EQ(resumed.scheduler.last_epoch(), 4);
  resumed.step();
  expect_equal(whole.tensors(), resumed.tensors());
  EXPECT_EQ(whole.optimizer.groups()[1].lr, resumed.optimizer.groups()[1].lr);
  EXPECT_THAT(lines, HasSubstr("Loading the checkpoint from " + path("step-4") + "."));
  EXPECT_THAT(lines, HasSubstr("Finished saving the checkpoint in "));
}

TEST_F(CheckpointerTest, LoadsANamedStep) {
  TinyJob whole;
  Checkpointer checkpoints(config, whole.job);
  run_five(whole, checkpoints);
  TinyJob resumed;
  EXPECT_TRUE(Checkpointer(config, resumed.job).load(2));
  EXPECT_EQ(resumed.train.step, 2);
  EXPECT_THROW(Checkpointer(config, resumed.job).load(3), StorageError);
}

TEST_F(CheckpointerTest, WritesTorchTitansEntries) {
  TinyJob job;
  Checkpointer checkpoints(config, job.job);
  run_five(job, checkpoints);
  const auto saved = Checkpoint::open(path("step-4"));
  const Catalog& catalog = saved->catalog();
  EXPECT_EQ(catalog.files().size(), 1);
  EXPECT_EQ(catalog.files()[0].path, "__0_0.distcp");
  EXPECT_EQ(catalog.names_in_order()[0], "train_state.step");
  EXPECT_EQ(catalog.names_in_order()[2], "optimizer.state.qkv.wqkv.step");
  EXPECT_TRUE(catalog.find_tensor("qkv.wq"));
  EXPECT_FALSE(catalog.find_tensor("qkv.wqkv"));
  EXPECT_TRUE(catalog.find_tensor("lm_head.weight"));
  EXPECT_TRUE(catalog.find_tensor("layers.0.expert_bias_E"));
  EXPECT_FALSE(catalog.find_tensor("layers.0.tokens_per_expert_E"));
  EXPECT_FALSE(catalog.find_object("optimizer.param_groups.layers.0.expert_bias_E.lr"));
  EXPECT_EQ(catalog.path("optimizer.state.qkv.wqkv.step"), (KeyPath{"optimizer", "state.qkv.wqkv.step"}));
  const auto lr = saved->read_object(*catalog.find_object("optimizer.param_groups.qkv.wqkv.lr"));
  EXPECT_EQ(lr.value->as_double(), 8e-4);  // after four of four steps of warm-up
}

TEST_F(CheckpointerTest, RowsOfFusedPartsAreInOrder) {
  TinyJob job;
  Checkpointer(config, job.job).save(2, false);
  const auto saved = Checkpoint::open(path("step-2"));
  for (const SavedPart& part : job.model.fused_.parts) {
    const at::Tensor want = part_view(job.model.fused_.local.detach(), part).reshape({-1, 3}).contiguous();
    at::Tensor got = at::empty_like(want);
    const Dims shape(want.sizes().begin(), want.sizes().end());
    load(saved, {{part.name,
                  DType::kFloat32,
                  shape,
                  Box::whole(shape),
                  static_cast<std::byte*>(got.data_ptr()),
                  {}}});
    EXPECT_TRUE(at::equal(want, got)) << part.name;
  }
}

TEST_F(CheckpointerTest, AnotherModelIsOneReportAndChangesNothing) {
  TinyJob job;
  Checkpointer(config, job.job).save(2, false);
  TinyJob wider(5);
  const auto before = wider.tensors();
  try {
    Checkpointer(config, wider.job).load(-1);
    FAIL();
  } catch (const ShapeMismatchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layers.0.w: saved [4, 3], wanted [4, 5]"));
    EXPECT_THAT(error.what(), HasSubstr("qkv.wv: saved [2, 3], wanted [2, 5]"));
    EXPECT_THAT(error.what(), HasSubstr("optimizer.state.qkv.wqkv.exp_avg: saved [8, 3], wanted [8, 5]"));
  }
  expect_equal(before, wider.tensors());
  EXPECT_EQ(wider.train.step, 0);
}

TEST_F(CheckpointerTest, AFileCutShortChangesNothing) {
  TinyJob job;
  Checkpointer(config, job.job).save(2, false);
  std::filesystem::resize_file(path("step-2/__0_0.distcp"), 1000);
  TinyJob other;
  const auto before = other.tensors();
  EXPECT_THROW(Checkpointer(config, other.job).load(2), FormatError);
  expect_equal(before, other.tensors());
  // Unasked for it, the run does not begin over it.
  EXPECT_THROW(Checkpointer(config, other.job).load(-1), ValueError);
  expect_equal(before, other.tensors());
  std::filesystem::remove(path("step-2/.metadata"));
  EXPECT_FALSE(Checkpointer(config, other.job).load(-1));
}

TEST_F(CheckpointerTest, PartsCanBeLeftOut) {
  TinyJob job;
  Checkpointer checkpoints(config, job.job);
  run_five(job, checkpoints);
  config.checkpoint.exclude_from_loading = {"optimizer", "lr_scheduler", "train_state"};
  TinyJob other;
  EXPECT_TRUE(Checkpointer(config, other.job).load(-1));
  EXPECT_EQ(other.train.step, 0);
  EXPECT_EQ(other.scheduler.last_epoch(), 0);
  EXPECT_FALSE(other.optimizer.groups()[0].moments[0].step.defined());
  config.checkpoint.exclude_from_loading = {"data_loader"};
  EXPECT_THROW(Checkpointer(config, other.job).load(-1), ValueError);
}

TEST_F(CheckpointerTest, InitialPathGivesTheModelAlone) {
  TinyJob job;
  Checkpointer checkpoints(config, job.job);
  run_five(job, checkpoints);
  config::Trainer other_config = config;
  other_config.checkpoint.folder = "other";
  other_config.checkpoint.initial_load_path = path("step-4");
  TinyJob other;
  EXPECT_TRUE(Checkpointer(other_config, other.job).load(-1));
  EXPECT_EQ(other.train.step, 0);
  EXPECT_FALSE(other.optimizer.groups()[0].moments[0].step.defined());
  other_config.checkpoint.initial_load_model_only = false;
  EXPECT_TRUE(Checkpointer(other_config, other.job).load(-1));
  EXPECT_EQ(other.train.step, 4);
}

TEST_F(CheckpointerTest, LastSaveOfTheModelIsCastAndNotResumed) {
  config.checkpoint.last_save_model_only = true;
  config.checkpoint.export_dtype = "bfloat16";
  TinyJob job;
  Checkpointer checkpoints(config, job.job, log());
  run_five(job, checkpoints);
  EXPECT_TRUE(checkpoints.save(5, true));
  EXPECT_THAT(lines, HasSubstr("Saving a model only checkpoint in torch.bfloat16 at last step, step 5."));
  EXPECT_THAT(lines, HasSubstr("Last step checkpoint completed in "));
  const auto saved = Checkpoint::open(path("step-5"));
  EXPECT_EQ(saved->catalog().objects().size(), 0);
  EXPECT_EQ(saved->catalog().tensors().size(), 6);
  for (const Catalog::Tensor& tensor : saved->catalog().tensors()) EXPECT_EQ(tensor.dtype, DType::kBFloat16);
  TinyJob other;
  EXPECT_TRUE(Checkpointer(config, other.job, log()).load(-1));
  EXPECT_EQ(other.train.step, 4);
  EXPECT_THAT(lines, HasSubstr("WARNING step-5 is not resumed from: it holds no optimizer"));
}

TEST_F(CheckpointerTest, KeepsTheNewest) {
  config.checkpoint.interval = 1;
  config.checkpoint.keep_latest_k = 2;
  TinyJob job;
  Checkpointer checkpoints(config, job.job, log());
  std::filesystem::create_directories(path("step-0"));
  run_five(job, checkpoints);
  checkpoints.close();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path("")))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("step-0", "step-4", "step-5"));
  EXPECT_THAT(lines, HasSubstr("Checkpointer is deleting " + path("step-1") + "."));
}

TEST_F(CheckpointerTest, WhatInterruptedSavesLeftIsRemoved) {
  TinyJob job;
  Checkpointer(config, job.job).save(2, false);
  const std::string debris = path(".milepost-staging-0123456789abcdef");
  std::filesystem::create_directories(debris + "/data");
  EXPECT_TRUE(Checkpointer(config, job.job, log()).load(-1));
  EXPECT_FALSE(std::filesystem::exists(debris));
  EXPECT_THAT(lines, HasSubstr("interrupted saves or removals"));
}

// Killed between the two renames that stand in for an exchange.
TEST_F(CheckpointerTest, AStepThatAnInterruptedSaveMovedAsideIsResumed) {
  TinyJob job;
  Checkpointer checkpoints(config, job.job);
  run_five(job, checkpoints);
  const std::string debris =
      parent_path(StagedOutput(posix_storage(), path("step-4"), StagedOutput::Kind::kDirectory, true).path());
  std::filesystem::create_directories(debris);
  std::filesystem::rename(path("step-4"), debris + "/old-step-4");
  TinyJob other;
  EXPECT_TRUE(Checkpointer(config, other.job, log()).load(-1));
  EXPECT_EQ(other.train.step, 4);
  EXPECT_FALSE(std::filesystem::exists(debris));
  EXPECT_THAT(lines, HasSubstr(path("step-4") + " is back at its place"));
}

TEST_F(CheckpointerTest, DoesNothingWhenOff) {
  config.checkpoint.enable = false;
  TinyJob job;
  Checkpointer checkpoints(config, job.job, log());
  EXPECT_FALSE(checkpoints.load(-1));
  EXPECT_FALSE(checkpoints.load(7));
  EXPECT_FALSE(checkpoints.save(2, true));
  EXPECT_FALSE(checkpoints.save_before_end(2));
  checkpoints.wait_for_staging();
  checkpoints.close();
  EXPECT_EQ(lines, "");
  EXPECT_FALSE(std::filesystem::exists(path("")));
}

TEST_F(CheckpointerTest, LoadOnlySavesNothing) {
  TinyJob job;
  Checkpointer(config, job.job).save(2, false);
  config.checkpoint.load_only = true;
  Checkpointer checkpoints(config, job.job);
  EXPECT_TRUE(checkpoints.load(-1));
  EXPECT_FALSE(checkpoints.save(4, true));
  EXPECT_FALSE(checkpoints.save_before_end(4));
}

TEST_F(CheckpointerTest, ARunThatEndsEarlySavesOnce) {
  TinyJob job;
  Checkpointer checkpoints(config, job.job);
  EXPECT_TRUE(checkpoints.save(2, false));
  EXPECT_FALSE(checkpoints.save_before_end(2));
  EXPECT_TRUE(checkpoints.save_before_end(3));
  EXPECT_TRUE(std::filesystem::exists(path("step-3/.metadata")));
}

TEST_F(CheckpointerTest, AStepThatIsPinnedWhileItIsSavedAgainStays) {
  TinyJob job;
  const StorageLocation step = resolve_location(path("step-2"));
  Checkpointer(config, job.job).save(2, false);
  for (const bool is_last : {false, true}) {
    manager::set_pin(step, false);
    Checkpointer checkpoints(config, job.job, [&](bool is_warning, std::string_view text) {
      if (text.starts_with("Checkpoint step-2 written")) manager::set_pin(step, true);
      log()(is_warning, text);
    });
    if (is_last) {
      EXPECT_THROW(checkpoints.save(2, true), ValueError);
    } else {
      EXPECT_FALSE(checkpoints.save(2, false));
    }
    EXPECT_EQ(checkpoints.published_step(), -1);
    EXPECT_TRUE(manager::is_pinned(step));
  }
  EXPECT_THAT(lines, HasSubstr("WARNING step-2 is pinned: it stays as it is, and is not saved again"));
}

TEST_F(CheckpointerTest, EqualJobsWriteEqualBytes) {
  TinyJob job;
  job.step();
  Checkpointer(config, job.job).save(2, false);
  config::Trainer elsewhere = config;
  elsewhere.checkpoint.folder = "elsewhere";
  Checkpointer(elsewhere, job.job).save(2, false);
  const auto read = [](const std::string& path) {
    const auto file = posix_storage()->open_read(path);
    return read_all(*file, file->size());
  };
  for (const char* name : {"/step-2/.metadata", "/step-2/__0_0.distcp"}) {
    EXPECT_EQ(read(config.dump_folder + "/checkpoint" + name),
              read(config.dump_folder + "/elsewhere" + name));
  }
}

TEST_F(CheckpointerTest, RandomNumbersGoOn) {
  TinyJob job;
  Checkpointer(config, job.job).save(2, false);
  const at::Tensor want = at::randn({5});
  TinyJob other;
  Checkpointer(config, other.job).load(-1);
  EXPECT_TRUE(at::equal(want, at::randn({5})));
  EXPECT_THROW(set_rng_state("no state"), FormatError);
}

}  // namespace
}  // namespace milepost::train
