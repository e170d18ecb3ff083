// Policy: where checkpoints lie, when to save, and what this version cannot do (spec
// checkpoint-manager, sections 2, 3, 6 and 9).
//
// Pure functions of configuration and numbers: no files, no clock, no torch. Any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "milepost/config/trainer.h"

namespace milepost::manager {

// A line for the log.
struct Message {
  bool is_warning = false;
  std::string text;
};

// The folder that holds a run's steps: checkpoint.folder below the dump folder; an absolute one, and one with
// "://", stands for itself. Without a slash at the end.
std::string checkpoint_folder(const config::Trainer& config);
// "FOLDER/step-N".
std::string step_path(const std::string& folder, int64_t step);

// Whether to save after `step`. Creating a seed checkpoint asks with step 0 as the last one.
bool should_save(const config::Checkpoint& options, int64_t step, bool last_step);

// What the options ask for and this version does not do: what it does instead, as warnings; and what they do
// that may surprise. Throws ValueError where there is no instead (a remote folder). Nothing when
// checkpoint.enable is off, but for the moving average.
std::vector<Message> check_supported(const config::Trainer& config);

}  // namespace milepost::manager
