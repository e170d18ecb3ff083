// A training job's state: everything that a checkpoint holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "milepost/data/prefetch.h"
#include "train/models/model.h"
#include "train/optim/ema.h"
#include "train/optim/optimizer.h"
#include "train/parallel/process_groups.h"

namespace milepost::train {

struct TrainState {
  int64_t step = 0, ntokens_seen = 0;
};

// Not owned; all outlive the job.
struct Job {
  Model* model = nullptr;
  Optimizer* optimizer = nullptr;     // null where nothing is trained (generation): only models are loaded
  LrScheduler* scheduler = nullptr;   // null with the optimizer
  data::Prefetcher* data = nullptr;   // of this rank; null where there is no data
  TrainState* train = nullptr;        // null with the optimizer
  int64_t dp_rank = 0, dp_world = 1;  // this rank's place among those that read different data
  ProcessGroups* groups = nullptr;    // null with one process
  Ema* ema = nullptr;                 // null where no moving average is kept

  int64_t rank() const { return groups == nullptr ? 0 : groups->mesh().rank(); }
};

// Where lines for the log go; called on the thread that calls the checkpointer, and on threads of its own.
using LogLine = std::function<void(bool is_warning, std::string_view text)>;

}  // namespace milepost::train
