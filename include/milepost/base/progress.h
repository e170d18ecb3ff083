// Progress: counters that a long operation adds to and that an end (a progress bar, a log line) reads. Data
// flows down: no callback.
#pragma once

#include <atomic>
#include <cstdint>

namespace milepost {

// Threads: any thread may add or read. The operation sets `total_bytes` before it moves the first byte (0
// until then).
struct Progress {
  std::atomic<int64_t> total_bytes{0};
  std::atomic<int64_t> done_bytes{0};
  std::atomic<bool> cancel{
      false};  // set by the end: the operation throws Error(kIo, "cancelled") at the next block and cleans up
};

}  // namespace milepost
