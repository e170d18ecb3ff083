// What a job does with the folders of tests/data/bad that hold a DCP checkpoint; their README.md says what is
// right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "milepost/base/error.h"
#include "train/state/checkpointer.h"
#include "train/state/test_job.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct NamedShape {
  std::string name;
  std::vector<int64_t> sizes;
};

class PlainModel final : public Model {
 public:
  explicit PlainModel(const std::vector<NamedShape>& shapes) : parameters_of_(shapes.size()) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      parameters_of_[i].name = shapes[i].name;
      parameters_of_[i].shape = shapes[i].sizes;
      parameters_.push_back(&parameters_of_[i]);
    }
    allocate(at::kFloat, at::kCPU);
    const at::NoGradGuard no_grad;
    for (Parameter* parameter : parameters_) parameter->local.fill_(-1);
  }
  std::vector<at::Tensor> hidden(const Batch&, Execution&, bool) override { return {}; }
  at::Tensor logits(const at::Tensor& hidden) override { return hidden; }
  const Block& head() const override { return head_; }
  at::Tensor values(size_t i) const { return parameters_[i]->local.detach(); }

 private:
  std::vector<Parameter> parameters_of_;
  Block head_;
};

// One rank of a job of `world` that reads the text of tests/data/loader.
struct PlainJob {
  explicit PlainJob(const std::vector<NamedShape>& shapes, int64_t rank = 0, int64_t world = 1)
      : model(shapes), data(open_loader(rank, world)) {
    job.dp_rank = rank;
    job.dp_world = world;
  }
  static std::unique_ptr<data::Loader> open_loader(int64_t rank, int64_t world) {
    const data::DocumentEncoder bytes{.fingerprint = "bytes",
                                      .vocab_size = 256,
                                      .encode = [](std::string_view text, std::vector<int32_t>* ids) {
                                        for (char c : text) ids->push_back(static_cast<unsigned char>(c));
                                      }};
    return data::Loader::open(posix_storage(),
                              {.dataset_path = MILEPOST_TEST_DATA "/loader/data.json",
                               .local_batch_size = 2,
                               .seq_len = 64,
                               .dp_rank = rank,
                               .dp_world = world},
                              bytes);
  }

  PlainModel model;
  Optimizer optimizer{model.parameters(), one_group()};
  LrScheduler scheduler{LrSchedule(warmup(), 100), optimizer};
  data::Prefetcher data;
  TrainState train;
  Job job{&model, &optimizer, &scheduler, &data, &train};
};

const std::vector<NamedShape> kW = {{"w", {4, 2}}};

class BadFolders : public testing::Test {
 protected:
  BadFolders() {
    std::string folder = testing::TempDir() + "/milepost-bad-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw errno;
    config.dump_folder = folder;
    config.checkpoint.enable = true;
  }
  ~BadFolders() override { std::filesystem::remove_all(config.dump_folder); }

  // As the run's own folder, in a copy.
  void take(const std::string& name) const {
    std::filesystem::copy(MILEPOST_TEST_DATA "/bad/" + name + "/checkpoint",
                          config.dump_folder + "/checkpoint", std::filesystem::copy_options::recursive);
  }
  // As weights to begin with.
  void begin_with(const std::string& name) {
    config.checkpoint.initial_load_path = MILEPOST_TEST_DATA "/bad/" + name;
  }
  std::string error_of_load(PlainJob& job, int64_t step = -1) {
    try {
      Checkpointer(config, job.job, log()).load(step);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  LogLine log() {
    return [this](bool is_warning, std::string_view text) {
      lines += (is_warning ? "WARNING " : "") + std::string(text) + "\n";
    };
  }

  config::Trainer config;
  std::string lines;
};

TEST_F(BadFolders, AnEntryOfARankThatWasNotThereIsNamedOnAllRanks) {
  take("dataloader-missing-rank");
  config.checkpoint.exclude_from_loading = {"optimizer", "lr_scheduler", "train_state"};
  for (const int64_t rank : {0, 1}) {
    PlainJob job(kW, rank, 2);
    EXPECT_THAT(error_of_load(job), AllOf(HasSubstr("data-parallel degree 1, this run has 2"),
                                          HasSubstr("'dataloader.dp_rank_1' is missing"),
                                          HasSubstr("--checkpoint.exclude-from-loading dataloader")));
    EXPECT_TRUE(at::equal(job.model.values(0), at::full({4, 2}, -1.F)));
  }
  config.checkpoint.exclude_from_loading.push_back("dataloader");
  PlainJob job(kW, 1, 2);
  EXPECT_EQ(error_of_load(job), "no error");
  EXPECT_FALSE(at::equal(job.model.values(0), at::full({4, 2}, -1.F)));
}

TEST_F(BadFolders, AModelOnlyStepIsPassedOverOrRefused) {
  take("resume-from-model-only");
  PlainJob job(kW);
  EXPECT_THAT(error_of_load(job, 20),
              AllOf(HasSubstr("load_step=20 cannot be resumed from: it holds no optimizer"),
                    HasSubstr("there are step-20, step-10")));
  EXPECT_FALSE(job.optimizer.groups()[0].moments[0].step.defined());
  // Step 10 has no loader's state, nor all that a job of today needs of the others.
  config.checkpoint.exclude_from_loading = {"dataloader", "optimizer", "train_state"};
  EXPECT_EQ(error_of_load(job), "no error");
  EXPECT_THAT(lines,
              AllOf(HasSubstr("step-20 is not resumed from: it holds no lr_scheduler; to start a new run"),
                    HasSubstr("/checkpoint/step-10.")));
}

TEST_F(BadFolders, AnIncompleteStepIsNotAnAbsentOne) {
  take("steps-basic");
  PlainJob job(kW);
  config.checkpoint.exclude_from_loading = {"dataloader", "optimizer", "lr_scheduler", "train_state"};
  EXPECT_THAT(error_of_load(job, 100),
              AllOf(HasSubstr("step-100"), HasSubstr("incomplete"), Not(HasSubstr("not found"))));
  EXPECT_THAT(error_of_load(job, 11), AllOf(HasSubstr("not found"), HasSubstr("there are step-10, step-9")));
  EXPECT_EQ(error_of_load(job), "no error");
  EXPECT_THAT(lines, HasSubstr("/checkpoint/step-10."));
}

TEST_F(BadFolders, AllThatDoesNotFitIsOneReport) {
  begin_with("shape-mismatch/ckpt");
  PlainJob job({{"emb", {6, 2}}, {"new", {2}}});
  EXPECT_THAT(error_of_load(job), AllOf(HasSubstr("emb: saved [4, 2], wanted [6, 2]"),
                                        HasSubstr("missing in the checkpoint (1):\n    new"),
                                        HasSubstr("but not in the model (1):\n    old")));
  EXPECT_TRUE(at::equal(job.model.values(0), at::full({6, 2}, -1.F)));
}

TEST_F(BadFolders, AMissingFileIsNamedBeforeAnythingIsLoaded) {
  begin_with("data-file-missing/ckpt");
  PlainJob job(kW);
  EXPECT_THAT(error_of_load(job), HasSubstr("__1_0.distcp"));
  EXPECT_TRUE(at::equal(job.model.values(0), at::full({4, 2}, -1.F)));
}

TEST_F(BadFolders, ACallableInAnEntryIsRefusedOnlyByWhoNeedsTheEntry) {
  begin_with("bytes-entry-pickle-callable/ckpt");
  PlainJob job(kW);
  EXPECT_EQ(error_of_load(job), "no error");
  EXPECT_FALSE(at::equal(job.model.values(0), at::full({4, 2}, -1.F)));
  EXPECT_FALSE(std::filesystem::exists("CAIRN_MARKER"));
}

TEST_F(BadFolders, DamagedMetadataIsRefused) {
  for (const char* name : {"empty", "half", "one-byte-off", "garbage", "wrong-type", "missing-storage"}) {
    begin_with("metadata-damaged/" + std::string(name));
    PlainJob job(kW);
    EXPECT_THAT(error_of_load(job), HasSubstr(std::string("metadata-damaged/") + name)) << name;
    EXPECT_TRUE(at::equal(job.model.values(0), at::full({4, 2}, -1.F)));
  }
  begin_with("metadata-damaged/future-version");
  PlainJob job(kW);
  EXPECT_EQ(error_of_load(job), "no error");
  EXPECT_THAT(lines, HasSubstr("WARNING " MILEPOST_TEST_DATA
                               "/bad/metadata-damaged/future-version: the metadata is of "
                               "version '99.0.0'"));
}

}  // namespace
}  // namespace milepost::train
