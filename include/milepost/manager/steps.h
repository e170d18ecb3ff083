// Steps: the checkpoints that lie in a run's folder, and which of them training can go on from.
//
// A step is a folder named exactly `step-N`, N in decimal without leading zeros; "old-step-7", "step-7.tmp"
// and files are none. Writers publish the index last, so that a folder without one is what an interrupted
// save left, and no step. A step is complete when its index can be read and every data file that the index
// names is there in full length; otherwise something damaged it after its save. Only indexes are read.
//
// Threads: any; nothing is kept between calls. What else happens in the folder meanwhile may or may not show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/engine/checkpoint.h"
#include "milepost/storage/storage.h"

namespace milepost::manager {

// The parts of a training state beside the model, which a resume needs unless it leaves them out.
inline constexpr std::string_view kStateParts[] = {"optimizer", "lr_scheduler", "dataloader", "train_state"};

// N of "step-N"; nullopt for any other name.
std::optional<int64_t> step_number(std::string_view name);

// The steps of a folder that are or claim to be checkpoints (they hold `.metadata` or
// `model.safetensors.index.json`), ascending. An absent folder has none.
std::vector<int64_t> list_steps(const StorageLocation& folder);

struct Step {
  enum class Kind : uint8_t {
    kFull,         // the model and all parts that were asked for
    kModelOnly,    // the model, but not all of them
    kHuggingFace,  // safetensors
    kNoModel,      // parts without a model
    kDamaged,      // files are missing or cut short, or cannot be read
  };
  int64_t number = 0;
  Kind kind = Kind::kDamaged;
  std::string why;  // why it is not kFull, for people: "it holds no optimizer and no train_state"
};

// What step `number` of `folder` is; `parts`: which of kStateParts a resume needs. Throws StorageError for
// what keeps this process from looking (is_lasting() in storage/lasting.h is not so): rights, descriptors.
Step classify_step(const StorageLocation& folder, int64_t number, const std::vector<std::string>& parts);

// Throws FormatError (path) unless every data file that the index names is there in full length: kMissingFile
// with the first that is absent, kTruncated with the first that is too short.
void require_complete(const Checkpoint& checkpoint);

// The newest step that training can go on from, and the newer ones that it cannot, newest first. Step 0,
// which holds what a model starts as, only needs a model. Cost: the indexes of the steps looked at. Throws as
// classify_step() does.
struct Survey {
  bool folder_exists = false;
  std::optional<Step> newest;
  std::vector<Step> passed_over;
};
Survey survey_steps(const StorageLocation& folder, const std::vector<std::string>& parts);
// The newest one is damaged, `why` says how: passes it over and goes on to older ones. Requires
// survey.newest, and the `parts` that it was found with.
void pass_over_newest(const StorageLocation& folder, const std::vector<std::string>& parts, std::string why,
                      Survey* survey);

// A step that a run asks for by its number.
struct NamedStep {
  bool folder_exists = false;
  std::optional<Step> step;         // nullopt: it has no folder
  std::vector<int64_t> there;       // as list_steps(), where `step` is not a full one
  std::vector<int64_t> newer = {};  // what looks like later steps, ascending, where `step` is a full one
};
NamedStep look_up_step(const StorageLocation& folder, int64_t number, const std::vector<std::string>& parts);

// Whether Milepost wrote the checkpoint (it says so in `milepost.run`); retention removes no other.
bool is_own(const Checkpoint& checkpoint);

}  // namespace milepost::manager
