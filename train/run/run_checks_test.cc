#include "train/run/run_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refusal_of(const std::function<void(config::Trainer*)>& change) {
  config::Trainer trainer = config::make("deepseek_v3", "deepseek_v3_debugmodel");
  change(&trainer);
  return refusal([&] { check_settings(trainer); });
}

TEST(CheckSettings, PassesTheRegistrysEntries) {
  for (const config::Entry& entry : config::entries()) EXPECT_NO_THROW(check_settings(entry.make()));
}

TEST(CheckSettings, RefusesSizesThatCannotBe) {
  using Trainer = config::Trainer;
  EXPECT_THAT(refusal_of([](Trainer* t) { t->training.local_batch_size = 0; }),
              HasSubstr("training.local_batch_size must be at least 1, got 0"));
  EXPECT_THAT(refusal_of([](Trainer* t) { t->training.seq_len = -1; }),
              HasSubstr("training.seq_len must be"));
  EXPECT_THAT(refusal_of([](Trainer* t) { t->training.steps = -1; }), HasSubstr("training.steps must be"));
  EXPECT_THAT(refusal_of([](Trainer* t) { t->metrics.log_freq = 0; }), HasSubstr("metrics.log_freq must be"));
  EXPECT_THAT(refusal_of([](Trainer* t) {
                t->validator.enable = true;
                t->validator.freq = 0;
              }),
              HasSubstr("validator.freq must be"));
}

TEST(CheckSettings, RefusesChunksThatDoNotDivide) {
  EXPECT_THAT(refusal_of([](config::Trainer* t) { t->training.seq_len = 100; }),
              HasSubstr("sequence length must be divisible by num_chunks (100 % 8 != 0)"));
}

TEST(CheckSettings, RefusesAProfilersScheduleWithoutRoom) {
  EXPECT_THAT(refusal_of([](config::Trainer* t) {
                t->profiler.enable_profiling = true;
                t->profiler.profile_freq = 3;
              }),
              HasSubstr("profile_freq (3) must be at least"));
}

TEST(CheckSettings, RefusesWeightsAndBiases) {
  EXPECT_THAT(refusal_of([](config::Trainer* t) { t->metrics.enable_wandb = true; }),
              HasSubstr("cannot send to Weights & Biases"));
}

TEST(CheckParallelism, NamesEveryDegreeThatIsNotThereYet) {
  config::Parallelism degrees;
  degrees.data_parallel_replicate_degree = 2;
  degrees.data_parallel_shard_degree = 4;
  EXPECT_NO_THROW(check_parallelism(degrees));
  degrees.tensor_parallel_degree = 2;
  degrees.expert_parallel_degree = 4;
  EXPECT_THAT(refusal([&] { check_parallelism(degrees); }),
              HasSubstr("asked for: parallelism.tensor_parallel_degree 2, "
                        "parallelism.expert_parallel_degree 4"));
}

TEST(CheckWritable, MakesTheFolderAndLeavesNothingInIt) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "dump" / "deep";
  std::filesystem::remove_all(folder.parent_path());
  check_writable(folder.string(), "dump folder");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(CheckWritable, NamesAFolderThatIsAFile) {
  const std::string path = testing::TempDir() + "/dump-file";
  std::ofstream(path) << "a file";
  EXPECT_THAT(refusal([&] { check_writable(path, "dump folder"); }), HasSubstr(path));
}

TEST(CheckFolders, RefusesACheckpointFolderThatIsAFileOnlyWhereTheRunSaves) {
  config::Trainer trainer;
  trainer.dump_folder = testing::TempDir() + "/dump-with-file";
  std::filesystem::create_directories(trainer.dump_folder);
  std::ofstream(trainer.dump_folder + "/checkpoint") << "a file";
  check_folders(trainer);
  trainer.checkpoint.enable = true;
  EXPECT_THAT(refusal([&] { check_folders(trainer); }), HasSubstr("cannot make the checkpoint folder"));
  trainer.checkpoint.load_only = true;
  check_folders(trainer);
}

TEST(CheckFolders, MakesNoFolderOfARemotePathsName) {
  config::Trainer trainer;
  trainer.dump_folder = testing::TempDir() + "/dump-beside-remote";
  trainer.checkpoint.enable = true;
  trainer.checkpoint.folder = "s3://check-folders/steps";
  EXPECT_THAT(refusal([&] { check_folders(trainer); }), HasSubstr("checkpoint.folder is remote"));
  EXPECT_FALSE(std::filesystem::exists("s3:/check-folders"));
}

}  // namespace
}  // namespace milepost::train
