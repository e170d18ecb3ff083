#include "train/run/batches.h"

#include <algorithm>

namespace milepost::train {

Batch to_tensors(data::Batch& batch, at::Device device) {
  const auto tensor = [&](std::vector<int64_t>& values) {
    return at::from_blob(values.data(), {batch.rows, batch.seq_len}, at::kLong).to(device);
  };
  return {tensor(batch.inputs), tensor(batch.labels), tensor(batch.positions)};
}

int64_t num_valid_labels(std::span<const int64_t> labels) {
  return static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), kIgnoredLabel);
}

}  // namespace milepost::train
