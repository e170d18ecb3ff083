// The saving half of a job's checkpoints: what is written, when training may change what is being saved, and
// what becomes of an error (spec checkpoint-manager, sections 6, 7 and 10).
//
// checkpoint.async_mode only decides who holds the bytes while they are written:
//   disabled               the job's own tensors: training waits for the save
//   async                  a copy, made before save() returns
//   async_with_pinned_mem  a copy, made while the next forward and backward run; wait_for_staging() ends it
// One path writes and publishes: here, or on a thread of its own, over a group of ranks of its own. At most
// one save is under way; the next one waits for it. The last save is always of the first kind.
//
// Memory of the two asynchronous modes: a copy of this rank's part of the state, kept from save to save.
#pragma once

#include <memory>

#include "milepost/config/trainer.h"
#include "train/state/job.h"

namespace milepost::train {

// Threads: one calls; `log` is called on it and on threads of the saver. All ranks make the same calls.
class Saver {
 public:
  // `config` and what `job` names must outlive it.
  Saver(const config::Trainer& config, const Job& job, LogLine log);
  ~Saver();  // waits for what is under way, and drops its error

  // Training goes on from `step`: of the steps in the folder, retention counts those up to it, and those that
  // are saved from now on (manager/retention.h).
  void begin_with(int64_t step);
  // Saves the full state of `step`, or what the options want of the last one. False: nothing was written,
  // since the step is there and pinned, or the save failed and training may go on. Throws what made this save
  // fail, or the one before it, unless checkpoint.on_save_error is "warn", all ranks know of the failure
  // (Together::is_known_to_all) and more is to be saved: a rank that does not answer, what one rank alone
  // meets, and a failed last save are errors whatever the option says. A last step that is pinned is a
  // ValueError.
  bool save(int64_t step, bool last_step);
  // The full state, now, unless `step` has been saved: no step follows. False: it is there, or is pinned.
  bool save_before_end(int64_t step);
  // The step that was published last; -1: none. A staged one is none yet.
  int64_t published_step() const;
  // The longest of the saves that were published, from its beginning; 0: none was.
  double longest_save_seconds() const;
  // Before the job's tensors change. Throws as save() does, for a save that failed meanwhile.
  void wait_for_staging();
  // Waits for what is under way, the removal of old steps too, at the end of the run. Throws what made that
  // save fail. May be called again.
  void close();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace milepost::train
