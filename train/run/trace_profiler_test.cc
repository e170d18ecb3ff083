#include "train/run/trace_profiler.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "milepost/base/error.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

// One letter a step: . nothing, w warm-up, r recording, S recording and saving after it.
std::string schedule(const config::Profiler& options, int64_t num_steps) {
  std::string letters;
  for (int64_t index = 0; index < num_steps; ++index) {
    letters += ".wrS"[static_cast<int>(profiler_action(options, index))];
  }
  return letters;
}

TEST(ProfilerAction, WaitsWarmsUpAndRecordsInTurn) {
  EXPECT_EQ(schedule({}, 20), "......wwwS......wwwS");
  EXPECT_EQ(schedule({.profile_freq = 5, .profiler_active = 2, .profiler_warmup = 1}, 10), "..wrS..wrS");
}

TEST(ProfilerAction, CanRecordEveryStep) {
  EXPECT_EQ(schedule({.profile_freq = 1, .profiler_active = 1, .profiler_warmup = 0}, 3), "SSS");
}

TEST(ProfilerAction, StopsAfterItsRepeats) {
  config::Profiler options{.profile_freq = 4, .profiler_active = 1, .profiler_warmup = 1};
  options.profiler_repeat = 1;
  EXPECT_EQ(schedule(options, 8), "..wS....");
}

TEST(ProfilerAction, SkipsTheStart) {
  config::Profiler options{.profile_freq = 4, .profiler_active = 1, .profiler_warmup = 1};
  options.profiler_skip_first = 3;
  EXPECT_EQ(schedule(options, 8), ".....wS.");
  options.profiler_skip_first_wait = 1;
  EXPECT_EQ(schedule(options, 8), "...wS..w");
}

// The errno of what require_whole_trace() throws; -1 when it throws nothing.
int refusal_of(const std::string& path) {
  try {
    require_whole_trace(path);
  } catch (const StorageError& error) {
    EXPECT_EQ(error.path(), path);
    return error.error_number();
  }
  return -1;
}

TEST(RequireWholeTrace, SaysWhyThereIsNone) {
  const std::string folder = testing::TempDir() + "/traces";
  std::filesystem::remove_all(folder);
  const std::string path = folder + "/rank0_trace.json";
  EXPECT_EQ(refusal_of(path), ENOENT);
  std::filesystem::create_directories(path);
  EXPECT_EQ(refusal_of(path), EISDIR);
  std::filesystem::remove(path);
  std::ofstream(path) << "{\n  \"traceEvents\": [\n  {\n  }";
  EXPECT_EQ(refusal_of(path), 0);  // cut short for reasons that are over
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "{\n  \"traceEvents\": [\n  ],\"traceName\": \"a\" }";
  EXPECT_EQ(refusal_of(path), -1);
}

}  // namespace
}  // namespace milepost::train
