// EMA: an exponential moving average of the trainable parameters (spec checkpoint-manager, section 12.1).
//
//   Ema average(model.parameters(), config.ema_weights);   // before anything is loaded
//   ...; optimizer.step(); average.update(step); ...
//
// Each rank averages its own part of each parameter, in the parameter's dtype; buffers have no average. Costs
// the parameters' memory once more, and one pass over both for an update. Threads: one, that which trains.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "milepost/config/checkpoint.h"
#include "train/models/parameter.h"

namespace milepost::train {

// The decay that an average of so many updates has at this step; nullopt when there is no update after it.
//   n = max(1, floor((step - start_step + step_bias) / update_every_n_steps))
//   decay, or 2^(-1 / (half_life_fraction n)): the half-life is a share of the updates so far
std::optional<double> ema_decay(const config::EmaWeights& options, int64_t step);

class Ema {
 public:
  struct Average {
    const Parameter* parameter = nullptr;
    at::Tensor values;  // this rank's part; on the host with offload_to_cpu
  };

  // Begins with the parameters' values. They must outlive it. Requires valid options (config/validate.h).
  Ema(const std::vector<Parameter*>& parameters, const config::EmaWeights& options);

  const config::EmaWeights& options() const { return options_; }
  // One for each trainable parameter, in order. Waits for an update that is still on its way.
  const std::vector<Average>& averages();
  // After the optimizer's update of trainer step `step`: average = d average + (1 - d) parameter. Same bits
  // for any number of threads. On accelerators the work is queued, as the optimizer's is.
  void update(int64_t step);
  // Begins anew with the parameters' values.
  void reseed();

 private:
  config::EmaWeights options_;
  std::vector<Average> averages_;
  bool is_queued_ = false;  // copies to the host that nobody waited for
};

}  // namespace milepost::train
