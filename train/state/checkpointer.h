// Checkpoints of a training job: which one to start from, when to save, what is in it (spec
// checkpoint-manager). Policy is src/manager's; this joins it to libtorch's tensors.
#pragma once

#include <memory>

#include "milepost/config/trainer.h"
#include "train/state/job.h"

namespace milepost::train {

class Checkpointer {
 public:
  // Reads nothing yet. Throws ValueError for options that cannot stand.
  Checkpointer(const config::Trainer& config, const Job& job);
  ~Checkpointer();

  // Loads as the options say: `step` of the own folder, or the newest one there (-1), or the initial path.
  // Returns whether anything was loaded. All differences between checkpoint and job are one error, before
  // anything in the job has changed.
  bool load(int64_t step);
  // Saves when this step is due. Returns whether something was written.
  bool save(int64_t step, bool last_step);
  // Before the optimizer changes parameters: waits until a save no longer reads them.
  void wait_for_staging();
  // Ends what runs in the background.
  void close();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace milepost::train
