// Losses over hidden states: cross-entropy (whole or in chunks of the sequence) and multi-token prediction.
#pragma once

#include "milepost/config/sections.h"
#include "train/models/model.h"

namespace milepost::train {

// Sum of the cross-entropy of all valid labels, over `global_valid_tokens`; a float32 scalar with a gradient
// (spec training, section 7). `hidden`: what Model::hidden gave for `batch`. Logits are never held for more
// than a chunk with ChunkedLoss. Throws ValueError when L is not divisible by the number of chunks.
at::Tensor loss(const config::Loss& kind, Model& model, Execution& execution,
                const std::vector<at::Tensor>& hidden, const Batch& batch, int64_t global_valid_tokens);

}  // namespace milepost::train
