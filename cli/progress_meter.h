// ProgressMeter: watches a long operation from a thread of its own: the bar on the terminal and the peak of
// memory.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "interrupt.h"
#include "milepost/base/progress.h"
#include "terminal.h"

namespace milepost::cli {

// "convert  [=======>      ]  42 %  3.4 of 8.1 GB  1.2 GB/s  4.0 s left"; cut to `columns`. A total of 0
// means unknown.
std::string progress_line(std::string_view label, int64_t done, int64_t total, double seconds, int columns);

// Give `progress()` to the operation. While the meter lives, signals cancel it (see Interrupt).
class ProgressMeter {
 public:
  ProgressMeter(const Terminal& terminal, std::string label);
  ~ProgressMeter();

  Progress* progress() { return &progress_; }
  // Ends the bar and wipes it; idempotent, also done by the destructor.
  void finish();
  // Largest anonymous memory of the process seen so far (a sample every 20 ms); 0 where /proc does not say.
  int64_t peak_anonymous_bytes();

 private:
  void watch();
  void sample_memory();

  const Terminal& terminal_;
  std::string label_;
  Progress progress_;
  Interrupt interrupt_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;   // guarded by mutex_
  int64_t peak_bytes_ = 0;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace milepost::cli
