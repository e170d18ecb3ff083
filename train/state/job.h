// A training job's state: everything that a checkpoint holds.
#pragma once

#include <cstdint>

#include "milepost/data/prefetch.h"
#include "train/models/model.h"
#include "train/optim/optimizer.h"

namespace milepost::train {

struct TrainState {
  int64_t step = 0, ntokens_seen = 0;
};

// Not owned; all outlive the job.
struct Job {
  Model* model = nullptr;
  Optimizer* optimizer = nullptr;
  LrScheduler* scheduler = nullptr;
  data::Prefetcher* data = nullptr;  // of this rank; null where there is no data (generation)
  TrainState* train = nullptr;
};

}  // namespace milepost::train
