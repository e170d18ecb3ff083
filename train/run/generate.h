// Text from a model's weights, so that a person sees what they are worth: no cache of keys and values, the
// whole text goes through the model for each token.
#pragma once

#include <string>

#include "milepost/config/trainer.h"

namespace milepost::train {

// `prompt` and what the model says after it (generation.max_new_tokens, .temperature). The model and its
// compute dtype are the configuration's; weights come from checkpoint.initial_load_path (DCP or Hugging Face,
// sharded or not, fp8 too), else from the newest complete step of the own folder, else from hf_assets_path,
// which also holds the tokenizer. Drawn tokens follow debug.seed. Throws ValueError for options out of range,
// no weights, or a tokenizer whose ids the model has not; what loading throws (train/state/job_load.h).
std::string generate(const config::Trainer& config, const std::string& prompt);

}  // namespace milepost::train
