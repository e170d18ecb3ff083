// What a step takes on one rank, from the dimensions alone: for --training.steps 0, and to be held against
// what is measured.
//
// Parameters count as the model is laid out (train/models/sharding.h), with those of all stages of pp.
// Activations are shares of the whole model's: cp divides the sequence; tp divides what a layer keeps (heads
// and hidden dimensions inside, the sequence between layers) and the logits; pp the layers, with all
// microbatches of a batch under way at once. Without tp's sequence-parallel form, and for what MLA keeps
// before its heads, tp divides less than that; 1F1B schedules have fewer microbatches under way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "milepost/config/trainer.h"
#include "train/models/model.h"

namespace milepost::train {

struct MemoryEstimate {
  int64_t parameters = 0, gradients = 0, moments = 0;  // bytes, in training.dtype
  // What the backward pass of one batch needs at its peak: kept activations, parameters in the compute dtype,
  // gradients in it, and the largest block's temporary tensors.
  int64_t activations = 0;
  int64_t averages = 0;  // of ema_weights, in training.dtype
  int64_t total() const { return parameters + gradients + moments + activations + averages; }
  int64_t checkpoint_bytes = 0;  // of a full save, by all ranks together
};

// `model` built from `config.model`; it may be without memory. Pure.
MemoryEstimate estimate_memory(const config::Trainer& config, const Model& model);

// model_size's operations with only the scores that causality leaves. Pure.
int64_t causal_flops_per_token(const config::Model& config, int64_t seq_len);

// "parameters 0.12 + gradients 0.12 + moments 0.25 + activations 0.61 = 1.10 GiB".
std::string memory_text(const MemoryEstimate& estimate);

}  // namespace milepost::train
