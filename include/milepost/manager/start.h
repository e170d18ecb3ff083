// Start: which checkpoint a run begins with (spec checkpoint-manager, section 8).
//
//   Survey found = survey_steps(folder, parts_to_load(options));
//   Start start = choose_start(options, folder, hf_assets_path, found);  // decides
//   require_present(start);                                             // looks
//
// or, where a step is named, choose_named_step() on what look_up_step() has found.
//
// A run's own folder wins over every initial path. Threads: pure but for require_present.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/config/trainer.h"
#include "milepost/manager/policy.h"
#include "milepost/manager/steps.h"

namespace milepost::manager {

struct Start {
  enum class Source : uint8_t { kFresh, kOwnStep, kInitialPath, kHfAssets };
  Source source = Source::kFresh;
  std::string path;   // of the checkpoint; empty when fresh
  int64_t step = -1;  // kOwnStep: its number
  bool model_only = false, from_hf = false, quantised = false;
  std::vector<Message> messages;  // for the log, before anything is loaded
};

// Those of kStateParts that a full load takes: all but exclude_from_loading. The moving average is none of
// them: a checkpoint without one is resumed as well.
std::vector<std::string> parts_to_load(const config::Checkpoint& options);
bool is_excluded(const config::Checkpoint& options, std::string_view part);
// Throws ValueError for an excluded name that is no part of the state ("X not found in state_dict.").
// TorchTitan asks at full loads only.
void check_excluded(const config::Checkpoint& options);

// The newest own step, else what the options name for a beginning. Throws ValueError, which names every step
// and what is wrong with it, when the folder holds steps but none to go on from and a new run would begin
// over them unnoticed: damaged ones, and, unless an initial path is given, those without a training state.
// LaunchError "AssertionError" for options that config::validate refuses as well.
Start choose_start(const config::Checkpoint& options, const std::string& folder,
                   const std::string& hf_assets_path, const Survey& found);

// The own step of that number. A damaged one is chosen: what is wrong with its files is for those to say who
// verify and read them. Throws StorageError kNotFound, which lists the steps that are there, for one that is
// not; ValueError for one that holds less than a resume needs, with how a new run starts from its weights.
Start choose_named_step(const config::Checkpoint& options, const std::string& folder, int64_t number,
                        const NamedStep& found);

// Throws StorageError kNotFound for a step, ValueError for an initial path, that is no folder.
void require_present(const Start& start);

}  // namespace milepost::manager
