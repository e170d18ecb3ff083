// What a job holds at one moment, down to the last bit, to compare a job with later: every tensor (parameters
// and buffers, saved ones and others, moments, moving averages) and every number that the next step depends
// on, the states of data and random numbers included. This rank's part.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/state/job.h"

namespace milepost::train {

class JobImage {
 public:
  // Copies, on the host: costs the memory of the job's state once more. Makes the optimizer's moments where
  // there are none.
  explicit JobImage(const Job& job);

  int64_t num_tensors() const { return static_cast<int64_t>(tensors_.size()); }
  int64_t size_bytes() const;
  // Names and values, under the names of a checkpoint, of the first thing in which `job` differs; empty where
  // every bit is the same. Copies a tensor at a time.
  std::string difference(const Job& job) const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace milepost::train
