// What a job's checkpoint holds, as a snapshot of its live memory (engine/snapshot.h; spec
// checkpoint-manager, section 5). The order of entries is torch's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "milepost/engine/snapshot.h"
#include "milepost/manager/staging_buffers.h"
#include "train/state/job.h"

namespace milepost::train {

// A snapshot and what it looks at beside the job's own tensors: copies of those that are not on the host.
struct JobSnapshot {
  Snapshot snapshot;
  std::vector<at::Tensor> copies;
};

// The whole state. Makes the optimizer's moments where there are none. `run_record`: run_record.h. With
// `staging`, the snapshot looks at copies there instead of the job's host memory; the caller has them made.
JobSnapshot snapshot_of_job(const Job& job, const std::string& run_record,
                            manager::StagingBuffers* staging = nullptr);

// The model alone, floating tensors as `dtype`.
JobSnapshot snapshot_of_model(const Model& model, std::optional<DType> dtype);

// The state of the default generator of random numbers, as torch.get_rng_state() gives it.
std::string rng_state();
// Throws FormatError for what is no such state; the generator then is as before.
void set_rng_state(const std::string& state);
// As torch.manual_seed().
void seed_rng(uint64_t seed);

}  // namespace milepost::train
