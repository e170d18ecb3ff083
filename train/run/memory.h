// How much memory training takes.
#pragma once

#include <cstdint>

#include "train/run/metrics.h"
#include "train/torch.h"

namespace milepost::train {

// Bytes of this process in memory now, and the most since it began or since the last reset.
int64_t resident_bytes();
int64_t peak_resident_bytes();
int64_t machine_bytes();

// Peaks between two readings, of a device or, on a CPU, of the process. The system's mark of the process's
// peak is put back at each reading where it allows that; elsewhere a reading gives the peak since the start.
// One a process, one thread.
class MemoryMeter {
 public:
  explicit MemoryMeter(at::Device device);
  // The most since the last call.
  MemoryUse take_peak();
  // The most over all calls.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  at::Device device_;
  int64_t most_bytes_ = 0;
};

}  // namespace milepost::train
