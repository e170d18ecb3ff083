// Steps that TorchTitan has saved, loaded into the parts of a training run and saved again before it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "milepost/config/command_line.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/engine/diff.h"
#include "train/run/run_data.h"
#include "train/state/checkpointer.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using ::testing::UnorderedElementsAre;

const std::string kTitan = MILEPOST_TEST_DATA "/titan_runs";

config::Trainer titan_config(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--config-file", kTitan + "/run.json", "--hf-assets-path",
                               kTitan + "/tokenizer", "--dataloader.dataset-path", kTitan + "/data"});
  const auto read = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  return config::parse_command_line(flags, {}, read).trainer;
}

// What a run consists of before its first step, with starting values of its own.
struct TitanJob {
  explicit TitanJob(const config::Trainer& options) : config(options) {}

  static std::unique_ptr<Model> started_model(const config::Trainer& config) {
    std::unique_ptr<Model> model = build_model(config.model, {.seq_len = config.training.seq_len});
    model->allocate(at::kFloat, at::kCPU);
    model->initialize();
    return model;
  }

  const config::Trainer config;
  std::unique_ptr<Model> model = started_model(config);
  Optimizer optimizer{model->parameters(), config.optimizer};
  LrScheduler scheduler{LrSchedule(config.lr_scheduler, config.training.steps), optimizer};
  std::unique_ptr<data::Prefetcher> data = open_training_data(config, {});
  TrainState train;
  Job job{model.get(), &optimizer, &scheduler, data.get(), &train};
};

class TorchTitanStep : public testing::Test {
 protected:
  TorchTitanStep() {
    if (mkdtemp(folder_.data()) == nullptr) throw errno;
    at::manual_seed(1);
  }
  ~TorchTitanStep() override { std::filesystem::remove_all(folder_); }

  // Loads all of a step and saves it. Returns "KIND NAME" of each entry that then is not as it was.
  std::vector<std::string> differences(const std::string& name, int64_t step,
                                       std::vector<std::string> flags = {}) {
    const std::string path = kTitan + "/" + name + "/step-" + std::to_string(step);
    flags.insert(flags.begin(),
                 {"--dump-folder", folder_, "--checkpoint.enable", "--checkpoint.initial-load-path", path,
                  "--checkpoint.no-initial-load-model-only"});
    TitanJob job(titan_config(flags));
    Checkpointer checkpoints(job.config, job.job);
    EXPECT_TRUE(checkpoints.load(-1));
    EXPECT_EQ(job.train.step, step);
    EXPECT_TRUE(checkpoints.save(step, false));
    const DiffReport report =
        diff(Checkpoint::open(path), Checkpoint::open(folder_ + "/checkpoint/step-" + std::to_string(step)));
    EXPECT_EQ(report.tensors_compared, 109);
    std::vector<std::string> names;
    for (const Difference& difference : report.differences) {
      names.push_back(std::string(difference_kind_name(difference.kind)) + " " + difference.name);
    }
    return names;
  }

  std::string folder_ = testing::TempDir() + "/milepost-titan-XXXXXX";
};

// The loader's state is a pickle of another protocol; tests/interop compares what is in it.
TEST_F(TorchTitanStep, IsTheStartOfARunToTheBit) {
  EXPECT_THAT(differences("one_rank", 5),
              UnorderedElementsAre("values dataloader.dp_rank_0", "only_in_b milepost.rng.rank_0",
                                   "only_in_b milepost.data_ledger", "only_in_b milepost.run"));
}

// Their loader's state is that of another number of ranks, and so is a rank's share of the tokens.
TEST_F(TorchTitanStep, OfTwoRanksIsTheStartOfARunOfOneToTheBit) {
  for (const auto& [name, step] : {std::pair{"fsdp2", 10}, std::pair{"ep2", 5}}) {
    EXPECT_THAT(differences(name, step, {"--checkpoint.exclude-from-loading", "dataloader"}),
                UnorderedElementsAre("values dataloader.dp_rank_0", "only_in_a dataloader.dp_rank_1",
                                     "values dataloader.world_size", "values train_state.ntokens_seen",
                                     "only_in_b milepost.rng.rank_0", "only_in_b milepost.data_ledger",
                                     "only_in_b milepost.run"))
        << name;
    std::filesystem::remove_all(folder_ + "/checkpoint");
  }
}

}  // namespace
}  // namespace milepost::train
