#include "train/state/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "milepost/base/error.h"
#include "milepost/manager/pins.h"
#include "train/parallel/rank_threads.h"
#include "train/state/checkpointer.h"
#include "train/state/job_snapshot.h"
#include "train/state/test_job.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SaverFolder : public testing::Test {
 protected:
  SaverFolder() {
    std::string folder = testing::TempDir() + "/milepost-saver-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw errno;
    config.dump_folder = folder;
    config.checkpoint.enable = true;
    config.checkpoint.interval = 1;
    config.checkpoint.keep_latest_k = 2;
    at::manual_seed(1);
  }
  ~SaverFolder() override { std::filesystem::remove_all(config.dump_folder); }

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

  void wait_for_line(const std::string& text,
                     const std::function<void()>& meanwhile = std::this_thread::yield) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (bool is_there = false; !is_there && std::chrono::steady_clock::now() < deadline;) {
      meanwhile();
      const std::lock_guard lock(mutex);
      is_there = lines.find(text) != std::string::npos;
    }
  }

  config::Trainer config;
  std::mutex mutex;
  std::string lines;  // GUARDED_BY(mutex) while a saver lives
};

class SaverTest : public SaverFolder, public testing::WithParamInterface<const char*> {
 protected:
  SaverTest() { config.checkpoint.async_mode = *decltype(config.checkpoint.async_mode)::parse(GetParam()); }
  void fail_beside_training(Saver& saver);
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

// Of a step that is there. Random numbers go on as they would have.
void expect_saved(Checkpointer& loads, TinyJob& other, int64_t step,
                  const std::map<std::string, at::Tensor>& tensors) {
  const std::string random = rng_state();
  ASSERT_TRUE(loads.load(step));
  set_rng_state(random);
  expect_equal(other.tensors(), tensors);
}

// 200 times in all: whatever becomes of the job's tensors once it may change them, the checkpoint holds what
// they were.
TEST_P(SaverTest, SavesWhatWasThereWhenItWasAsked) {
  TinyJob job(1500), other(1500);
  Checkpointer loads(config, other.job, {});
  {
    Saver saver(config, job.job, log());
    std::map<std::string, at::Tensor> before;  // of the step before
    for (int64_t step = 1; step <= 100; ++step) {
      job.step();
      const std::map<std::string, at::Tensor> tensors = job.tensors();
      ASSERT_TRUE(saver.save(step, false));
      if (config.checkpoint.async_mode == "async_with_pinned_mem") saver.wait_for_staging();
      overwrite(job);
      if (step > 1) expect_saved(loads, other, step - 1, before);
      if (step % 5 == 0) {  // else the next save comes while this one is written
        wait_for(step);
        expect_saved(loads, other, step, tensors);
      }
      restore(job, tensors);
      before = tensors;
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

// A save of step 1 that fails beside the training.
void SaverTest::fail_beside_training(Saver& saver) {
  const SmallFiles small(20'000);
  EXPECT_TRUE(saver.save(1, false));
  wait_for_line("Saving the checkpoint of step 1 failed");
}

TEST_P(SaverTest, GoesOnWithoutASaveWhereAWarningIsEnough) {
  config.checkpoint.on_save_error = "warn";
  TinyJob job(1500);
  job.step();
  Saver saver(config, job.job, log());
  fail_beside_training(saver);
  EXPECT_TRUE(saver.save(2, false));
  saver.close();
  EXPECT_THAT(lines, HasSubstr("Training goes on without this checkpoint"));
  EXPECT_FALSE(exists(1));
  EXPECT_TRUE(exists(2));
}

// The data may end before another save is due.
TEST_P(SaverTest, FailsAtTheEndWhereNoSaveHasFollowedTheOneThatAWarningWasEnoughFor) {
  config.checkpoint.on_save_error = "warn";
  TinyJob job(1500);
  job.step();
  Saver saver(config, job.job, log());
  fail_beside_training(saver);
  EXPECT_NO_THROW(wait_for_line("Training goes on", [&] { saver.wait_for_staging(); }));
  EXPECT_THAT(lines, HasSubstr("Training goes on"));
  EXPECT_THROW(saver.close(), StorageError);
  EXPECT_THAT(lines, HasSubstr("The checkpoint that training went on without was the last one"));
  EXPECT_NO_THROW(saver.close());
}

TEST_P(SaverTest, FailsWithoutTheLastSaveWhateverAWarningIsEnoughFor) {
  config.checkpoint.on_save_error = "warn";
  TinyJob job(1500);
  job.step();
  Saver saver(config, job.job, log());
  {
    const SmallFiles small(20'000);
    EXPECT_TRUE(saver.save(1, false));
    EXPECT_THROW(saver.close(), StorageError);
    EXPECT_THROW(saver.save_before_end(1), StorageError);
    EXPECT_THROW(saver.save(2, true), StorageError);
  }
  EXPECT_THAT(lines, HasSubstr("WARNING The run fails without its last checkpoint"));
  EXPECT_THAT(lines, Not(HasSubstr("Training goes on")));
  EXPECT_TRUE(saver.save(2, true));
  ASSERT_TRUE(manager::set_pin({posix_storage(), config.dump_folder + "/checkpoint/step-2"}, true));
  EXPECT_THROW(saver.save(2, true), ValueError);
  EXPECT_FALSE(saver.save(2, false));
}

// Ranks of one job, who save together where "warn" is enough.
class SaverRanks : public SaverFolder {
 protected:
  SaverRanks() {
    degrees.dp_replicate = 2;
    config.checkpoint.on_save_error = "warn";
    config.checkpoint.extensions.verify_hash_manifest = true;
  }
  Degrees degrees;
};

TEST_F(SaverRanks, GoOnTogetherAfterAFailureThatAllKnowOf) {
  std::ofstream(config.dump_folder + "/checkpoint") << "a file where the folder of steps should be";
  run_ranks(degrees, [&](ProcessGroups& groups) {
    TinyJob job;
    job.job.groups = &groups;
    job.step();
    Saver saver(config, job.job, log());
    EXPECT_FALSE(saver.save(1, false));
    EXPECT_THROW(saver.save(2, true), Error);
    if (job.job.rank() == 0) std::filesystem::remove(config.dump_folder + "/checkpoint");
    EXPECT_TRUE(saver.save(3, false));
  });
  EXPECT_TRUE(exists(3));
}

// Here the first rank alone meets an error, when the step is published and only it tells the log.
TEST_F(SaverRanks, FailWhereOneOfThemFailsAlone) {
  run_ranks(degrees, [&](ProcessGroups& groups) {
    TinyJob job;
    job.job.groups = &groups;
    job.step();
    Saver saver(config, job.job, [](bool, std::string_view text) {
      if (text.starts_with("Wrote checkpoint hash manifest")) throw std::runtime_error("no room for a line");
    });
    if (job.job.rank() == 0) {
      EXPECT_THROW(saver.save(1, false), std::runtime_error);
    } else {
      EXPECT_TRUE(saver.save(1, false));
    }
  });
}

// While it is saved again: before anything is written, and before the new one takes its place.
TEST_P(SaverTest, LeavesAStepThatIsPinnedAtAnyMoment) {
  TinyJob job;
  job.step();
  {
    Saver saver(config, job.job, log());
    ASSERT_TRUE(saver.save(1, false));
    saver.close();
  }
  const StorageLocation step = resolve_location(config.dump_folder + "/checkpoint/step-1");
  for (const char* moment : {"Checkpoint step-1 staged", "Checkpoint step-1 written"}) {
    lines.clear();
    manager::set_pin(step, false);
    Saver saver(config, job.job, [&](bool is_warning, std::string_view text) {
      if (text.starts_with(moment)) manager::set_pin(step, true);
      log()(is_warning, text);
    });
    EXPECT_TRUE(saver.save(1, false)) << "it is staged";
    EXPECT_NO_THROW(saver.close());
    EXPECT_EQ(saver.published_step(), -1);
    EXPECT_TRUE(manager::is_pinned(step)) << moment;
    EXPECT_THAT(lines, HasSubstr("WARNING step-1 is pinned: it stays as it is, and is not saved again"))
        << moment;
    EXPECT_EQ(step.storage->list(parent_path(step.path)).size(), 1U) << moment;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SaverTest, testing::Values("async", "async_with_pinned_mem"));

}  // namespace
}  // namespace milepost::train
