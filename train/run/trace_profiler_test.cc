#include "train/run/trace_profiler.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace milepost::train
