#include "train/state/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <thread>

#include "milepost/base/error.h"
#include "train/state/checkpointer.h"
#include "train/state/test_job.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using ::testing::HasSubstr;

class SaverTest : public testing::TestWithParam<const char*> {
 protected:
  SaverTest() {
    std::string folder = testing::TempDir() + "/milepost-saver-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw errno;
    config.dump_folder = folder;
    config.checkpoint.enable = true;
    config.checkpoint.interval = 1;
    config.checkpoint.keep_latest_k = 2;
    config.checkpoint.async_mode = *decltype(config.checkpoint.async_mode)::parse(GetParam());
    at::manual_seed(1);
  }
  ~SaverTest() override { std::filesystem::remove_all(config.dump_folder); }

  LogLine log() {
    return [this](bool is_warning, std::string_view text) {
      const std::lock_guard lock(mutex);
      lines += std::string(is_warning ? "WARNING " : "") + std::string(text) + "\n";
    };
  }
  bool exists(int64_t step) const {
    return std::filesystem::exists(config.dump_folder + "/checkpoint/step-" + std::to_string(step));
  }

  void wait_for(int64_t step) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!exists(step) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  }

  config::Trainer config;
  std::mutex mutex;
  std::string lines;  // GUARDED_BY(mutex) while a saver lives
};

void overwrite(TinyJob& job) {
  const at::NoGradGuard no_grad;
  for (Parameter* parameter : job.model.parameters()) parameter->local.fill_(7);
  for (ParameterGroup& group : job.optimizer.groups()) {
    for (Moments& moments : group.moments) {
      for (at::Tensor* tensor : {&moments.step, &moments.exp_avg, &moments.exp_avg_sq}) tensor->fill_(7);
    }
  }
}

void restore(TinyJob& job, const std::map<std::string, at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (Parameter* parameter : job.model.parameters()) {
    if (parameter->saved) parameter->local.copy_(tensors.at(parameter->name));
  }
}

// 200 times in all: whatever becomes of the job's tensors once it may change them, the checkpoint holds what
// they were.
TEST_P(SaverTest, SavesWhatWasThereWhenItWasAsked) {
  TinyJob job(1500), other(1500);
  Checkpointer loads(config, other.job, {});
  {
    Saver saver(config, job.job, log());
    for (int64_t step = 1; step <= 100; ++step) {
      job.step();
      const std::map<std::string, at::Tensor> tensors = job.tensors();
      ASSERT_TRUE(saver.save(step, false));
      if (config.checkpoint.async_mode == "async_with_pinned_mem") saver.wait_for_staging();
      overwrite(job);
      if (step % 5 == 0) {  // else the next save comes while this one is written
        wait_for(step);
        ASSERT_TRUE(loads.load(step));
        expect_equal(other.tensors(), tensors);
      } else if (step > 1 && exists(step - 1)) {
        ASSERT_TRUE(loads.load(step - 1));
        EXPECT_NE(other.model.weight_.local[0][0].item<float>(), 7);
      }
      restore(job, tensors);
    }
    saver.close();
  }
  EXPECT_THAT(lines, HasSubstr("Finished saving the checkpoint of step 100 in"));
  EXPECT_FALSE(exists(97));
  EXPECT_TRUE(exists(99));
}

// Files of this process may not grow beyond a size while this lives.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_;
};

TEST_P(SaverTest, TellsOfAFailedSaveOnce) {
  TinyJob job(1500);
  job.step();
  Saver saver(config, job.job, log());
  {
    const SmallFiles small(20'000);
    EXPECT_TRUE(saver.save(1, false));
    EXPECT_THROW(saver.close(), StorageError);
  }
  EXPECT_THAT(lines, HasSubstr("WARNING Saving the checkpoint of step 1 failed"));
  EXPECT_FALSE(exists(1));
  EXPECT_NO_THROW(saver.wait_for_staging());
  EXPECT_TRUE(saver.save_before_end(1));  // it is not there yet
  EXPECT_TRUE(exists(1));
}

TEST_P(SaverTest, GoesOnWithoutASaveWhereAWarningIsEnough) {
  config.checkpoint.on_save_error = "warn";
  TinyJob job(1500);
  job.step();
  Saver saver(config, job.job, log());
  {
    const SmallFiles small(20'000);
    EXPECT_TRUE(saver.save(1, false));
    EXPECT_NO_THROW(saver.close());
    EXPECT_FALSE(saver.save(2, true));  // the last one waits, and fails as well
  }
  EXPECT_TRUE(saver.save(3, false));
  saver.close();
  EXPECT_THAT(lines, HasSubstr("Training goes on without this checkpoint"));
  EXPECT_FALSE(exists(1));
  EXPECT_FALSE(exists(2));
  EXPECT_TRUE(exists(3));
}

INSTANTIATE_TEST_SUITE_P(Modes, SaverTest, testing::Values("async", "async_with_pinned_mem"));

}  // namespace
}  // namespace milepost::train
