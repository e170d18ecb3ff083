// Retention: which of a run's older checkpoints go, and a thread that removes them.
//
// Only the run's own steps count: those up to the one that it began with, and those that it has published
// since. A folder may hold others, of training that was rolled back or newer ones that could not be begun
// with: the run has no say in what becomes of them.
//
// Of the run's full checkpoints (complete, a whole training state in them) the newest keep_latest_k stay; of
// the older ones those stay whose number keep_every divides, those that are pinned (pins.h), and those that
// Milepost did not write. What is not full is neither counted nor removed: saves of only the model are a
// run's results, the rest is somebody's save in progress, or damaged and may be mended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "milepost/config/checkpoint.h"
#include "milepost/manager/events.h"
#include "milepost/storage/storage.h"

namespace milepost::manager {

// What the files of a folder do not say: which steps led to where a run is.
struct RunSteps {
  int64_t began_with = -1;  // the step that training went on from; -1: from none
  std::set<int64_t> published;

  bool includes(int64_t step) const { return step <= began_with || published.contains(step); }
};

struct StepFacts {
  int64_t number = 0;
  bool is_full = false, is_ours = false, is_pinned = false;
};
// Cost: its index is read.
StepFacts look_at_step(const StorageLocation& folder, int64_t number);

// Of the steps of `run` among `steps`, in ascending order; none when keep_latest_k is 0. Pure.
std::vector<int64_t> steps_to_remove(std::span<const StepFacts> steps, const RunSteps& run,
                                     const config::Checkpoint& options);

// Removes in the background what may go. Nothing that happens there is an error of the run: a step that
// cannot be removed stays, and a warning says so: one that holds what no checkpoint has, or that another
// process writes to.
//
// Threads: any call the members, look_again() beside the others too; another, which lives as long as this,
// looks and removes. A kill at any point leaves each step whole or gone, and debris that the next run
// removes.
class StepRemover {
 public:
  // `log` is called on the removing thread, with TorchTitan's lines. `events` must outlive this; null: none.
  // No thread is made when keep_latest_k is 0.
  using Log = std::function<void(bool is_warning, std::string_view text)>;
  StepRemover(StorageLocation folder, const config::Checkpoint& options, Log log, EventLog* events);
  ~StepRemover();  // close()
  StepRemover(const StepRemover&) = delete;
  StepRemover& operator=(const StepRemover&) = delete;

  // Training goes on from `step`; of what was published before, what is newer is no more the run's.
  void begin_with(int64_t step);
  // After `step` was published. Returns at once.
  void look_again(int64_t step);
  // Waits until what was asked for is removed. May be called again.
  void close();

 private:
  void run();
  void remove_old(const RunSteps& steps);
  void remove(int64_t step);
  void keep(int64_t step, std::string_view stranger);

  const StorageLocation folder_;
  const config::Checkpoint options_;
  const Log log_;
  EventLog* const events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_asked_ = false, is_closing_ = false;  // GUARDED_BY(mutex_)
  RunSteps steps_;                              // GUARDED_BY(mutex_)
  std::set<int64_t> given_up_;                  // the removing thread's: steps with strangers in them
  std::thread thread_;
};

}  // namespace milepost::manager
