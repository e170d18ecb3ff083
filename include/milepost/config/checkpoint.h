// The `checkpoint` and `ema_weights` sections: where, when and what is saved and loaded. See sections.h for
// what holds of all sections, and validate.h for what may stand together.
#pragma once

#include "milepost/config/declare.h"
#include "milepost/config/values.h"

namespace milepost::config {

inline constexpr std::string_view kExportDtypes[] = {"float16", "bfloat16", "float32"};
inline constexpr std::string_view kOnSaveError[] = {"fail", "warn"};
inline constexpr std::string_view kAsyncModes[] = {"disabled", "async", "async_with_pinned_mem"};

// clang-format off
MILEPOST_CONFIG(CheckpointExtensions, "Additions of torchtitan-npu.",
  (bool, verify_hash_manifest, false, "Write SHA-256 sums of a step's files beside them, and check those that are there before loading.")
  (bool, require_manifest, false, "Refuse to load a checkpoint that has no such sums.", kOurs))

MILEPOST_CONFIG(Checkpoint, "Saving and loading.",
  (bool, enable, false, "Save and load checkpoints at all.")
  (std::string, folder, "checkpoint", "Folder of the steps (step-N), below the dump folder; one with :// stands for itself.")
  (int64_t, interval, 500, "Steps from one checkpoint to the next.")
  (std::optional<std::string>, initial_load_path, std::nullopt, "Step folder (or Hugging Face folder) to start from when there is no checkpoint in `folder` yet; absolute, or with ://.")
  (bool, initial_load_model_only, true, "Take only the model from initial_load_path.")
  (bool, initial_load_in_hf, false, "initial_load_path holds safetensors of Hugging Face.")
  (bool, initial_load_in_hf_quantized, false, "Those hold block-quantised float8 weights.")
  (bool, last_save_model_only, true, "The last checkpoint holds only the model, cast to export_dtype.")
  (bool, last_save_in_hf, false, "The last checkpoint is written as safetensors of Hugging Face.")
  (Choice<kExportDtypes>, export_dtype, "float32", "Dtype of a last checkpoint of only the model.")
  (int64_t, keep_latest_k, 10, "Checkpoints to keep; 0: all.")
  (int64_t, load_step, -1, "Step to load; -1: the newest that is complete.")
  (Strings, exclude_from_loading, {}, "Parts of the state that are not loaded: optimizer, lr_scheduler, dataloader, train_state, ema_optimizer.")
  (bool, enable_first_step_checkpoint, false, "Save after step 1, too.")
  (bool, create_seed_checkpoint, false, "Initialise the model on one rank, save it as step 0, and end.")
  (bool, load_only, false, "Load, and never save.")
  (Choice<kAsyncModes>, async_mode, "disabled", "disabled: training waits for a save. async: a save runs beside it. async_with_pinned_mem: likewise, from pinned memory.")
  (CheckpointExtensions, extensions, {}, "")
  (int64_t, keep_every, 0, "Of older checkpoints than keep_latest_k keeps, keep those whose step this divides, too; 0: none.", kOurs)
  (bool, fallback_to_older, false, "When verify_hash_manifest finds the newest step damaged, take the newest older one that is not.", kOurs)
  (Choice<kOnSaveError>, on_save_error, "fail", "When a save fails: fail ends the run, warn goes on without this checkpoint, unless it is the last.", kOurs))

MILEPOST_CONFIG(EmaWeights, "An exponential moving average of the weights, saved with the checkpoint (as torchtitan-npu has it).",
  (bool, enable, false, "Keep the average.")
  (std::optional<double>, decay, std::nullopt, "Fixed decay, at least 0 and below 1; None: by half_life_fraction.")
  (double, half_life_fraction, 0.05, "Half-life of the average as a share of the updates so far.")
  (int64_t, start_step, 0, "Step of the first update.")
  (int64_t, step_bias, 0, "Added to the number of steps when updates are counted.")
  (int64_t, update_every_n_steps, 1, "Steps from one update to the next.")
  (bool, offload_to_cpu, false, "Keep the average in host memory."))
// clang-format on

}  // namespace milepost::config
