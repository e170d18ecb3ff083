// Batches of the loader as tensors.
#pragma once

#include <cstdint>
#include <span>

#include "milepost/data/loader.h"
#include "train/models/model.h"

namespace milepost::train {

inline constexpr int64_t kIgnoredLabel = -100;

// The batch on `device`. On a CPU the tensors look at `batch`, which must outlive them.
Batch to_tensors(data::Batch& batch, at::Device device);

// Labels that count for the loss.
int64_t num_valid_labels(std::span<const int64_t> labels);

}  // namespace milepost::train
