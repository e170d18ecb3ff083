// Retention: which of a run's older checkpoints go, and a thread that removes them.
//
// Of the complete checkpoints the newest keep_latest_k stay; of the older ones those stay whose number
// keep_every divides, those that are pinned (pins.h), and those that Milepost did not write: full saves say
// that it did, saves of only the model do not, and are a run's results. What is not complete is neither
// counted nor removed: it is somebody's save in progress, or damaged and may be mended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "milepost/config/checkpoint.h"
#include "milepost/manager/events.h"
#include "milepost/storage/storage.h"

namespace milepost::manager {

struct StepFacts {
  int64_t number = 0;
  bool is_complete = false, is_ours = false, is_pinned = false;
};
// Cost: its index is read.
StepFacts look_at_step(const StorageLocation& folder, int64_t number);

// In ascending order; none when keep_latest_k is 0. Pure.
std::vector<int64_t> steps_to_remove(std::span<const StepFacts> steps, const config::Checkpoint& options);

// Removes in the background what may go. Nothing that happens there is an error of the run: a step that
// cannot be removed stays, and a warning says so.
//
// Threads: one calls the members; another, which lives as long as this, looks and removes. A kill at any
// point leaves each step whole or gone, and debris that the next run removes.
class StepRemover {
 public:
  // `log` is called on the removing thread, with TorchTitan's lines. `events` must outlive this; null: none.
  // No thread is made when keep_latest_k is 0.
  using Log = std::function<void(bool is_warning, std::string_view text)>;
  StepRemover(StorageLocation folder, const config::Checkpoint& options, Log log, EventLog* events);
  ~StepRemover();  // close()
  StepRemover(const StepRemover&) = delete;
  StepRemover& operator=(const StepRemover&) = delete;

  // After a save was published. Returns at once.
  void look_again();
  // Waits until what was asked for is removed. May be called again.
  void close();

 private:
  void run();
  void remove_old() const;
  void remove(int64_t step) const;

  const StorageLocation folder_;
  const config::Checkpoint options_;
  const Log log_;
  EventLog* const events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_asked_ = false, is_closing_ = false;  // GUARDED_BY(mutex_)
  std::thread thread_;
};

}  // namespace milepost::manager
