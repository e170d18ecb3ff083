// Tasks of unequal length on ATen's threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "train/torch.h"

namespace milepost::train {

// Calls run(task) once for each of [0, count), on any of the threads, and waits for all. Tasks are taken one
// by one: they differ in length, and so do processors' loads; so a task's result may not depend on the
// others'.
template <class Run>
void run_tasks(int64_t count, const Run& run) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t task = next++; task < count; task = next++) run(task);
  });
}

}  // namespace milepost::train
