// Checkpoints of a training job: which one to start from, when to save, what is in it (spec
// checkpoint-manager). Policy is src/manager's; this joins it to libtorch's tensors.
//
//   Checkpointer checkpoints(config, job, log);
//   checkpoints.load(config.checkpoint.load_step);  // before the first batch is taken
//   for (...) {
//     ...;
//     checkpoints.wait_for_staging();
//     optimizer.step();
//     ...;
//     checkpoints.save(step, is_last);
//   }
//   checkpoints.close();
//
// With checkpoint.enable off, nothing is loaded or saved. Threads: one calls, the one that trains; saves
// beside training and the removal of old steps have threads of their own, which write to the log, too.
#pragma once

#include <memory>

#include "milepost/config/trainer.h"
#include "train/state/job.h"

namespace milepost::train {

class Checkpointer {
 public:
  // Reads nothing yet. `config` and what `job` names must outlive it; `log` takes TorchTitan's lines. Throws
  // ValueError for options that cannot stand, or that this version has not.
  Checkpointer(const config::Trainer& config, const Job& job, LogLine log = {});
  ~Checkpointer();

  // Loads as the options say: `step` of the own folder, or the newest one there that can be resumed (-1), or
  // the initial path. Returns whether anything was loaded. Requires that no batch was taken from job.data.
  //
  // All differences between checkpoint and job are one error (MissingKeyError, ShapeMismatchError), before
  // anything in the job has changed; so are files that are missing or cut short (FormatError) and loader
  // states that do not fit (ValueError; of several ranks, the others' data may be at the new position then).
  // Only after a read that fails half-way (StorageError) the job holds unspecified values. Throws
  // StorageError kNotFound, ValueError for what is not there, CheckpointManifestError for files that are not
  // what their manifest says.
  bool load(int64_t step);
  // Saves when this step is due, and has removed in the background what keep_latest_k lets go. Returns
  // whether something was written: a pinned step is not, and a warning says so (of the last step: an error).
  // After an error the older checkpoints are intact, and none lies at this step's name unless only the last
  // sync of its folder failed. Durability: with async_mode "disabled", and of the last step, the checkpoint
  // survives a power cut after return. Throws what made this save fail, or the asynchronous one before it,
  // unless checkpoint.on_save_error is "warn" and more is to be saved (saver.h).
  bool save(int64_t step, bool last_step);
  // Saves the full state whatever the interval, for a run that ends early (a signal), unless this step has
  // been saved. As save() otherwise, and an error where that fails.
  bool save_before_end(int64_t step);
  // The last step that this job has published; -1: none.
  int64_t published_step() const;
  // Of the saves that were published, the one that took longest, from its beginning; 0: none was.
  double longest_save_seconds() const;
  // Before the optimizer changes parameters: waits until a save no longer reads them.
  void wait_for_staging();
  // Waits for what runs in the background, at the end of the run. Throws what made it fail.
  void close();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace milepost::train
