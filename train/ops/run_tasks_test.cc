#include "train/ops/run_tasks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace milepost::train {
namespace {

// Two tasks that wait for each other: on one thread the first would wait until its deadline.
TEST(RunTasks, RunOnSeveralThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  std::atomic<int> arrived{0}, met{0};
  run_tasks(2, [&](int64_t) {
    ++arrived;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (arrived == 2) ++met;
  });
  at::set_num_threads(threads);
  EXPECT_EQ(met, 2);
}

TEST(RunTasks, RunsEachTaskOnce) {
  std::atomic<int64_t> sum{0}, count{0};
  run_tasks(1000, [&](int64_t task) {
    sum += task;
    ++count;
  });
  EXPECT_EQ(count, 1000);
  EXPECT_EQ(sum, 999 * 1000 / 2);
  run_tasks(0, [&](int64_t) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace milepost::train
