// AdamW over groups of parameters (spec training, sections 8 to 11).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/config/sections.h"
#include "train/models/model.h"
#include "train/parallel/collectives.h"

namespace milepost::train {

// State of one parameter: local, as the parameter is.
struct Moments {
  at::Tensor step;                 // float32 scalar
  at::Tensor exp_avg, exp_avg_sq;  // shape of the parameter
};

struct ParameterGroup {
  config::ParamGroup
      options;    // pattern, name, betas, eps, weight decay; options.optimizer_kwargs.lr is the base rate
  double lr = 0;  // in use; the scheduler sets it
  std::vector<Parameter*> parameters;
  std::vector<Moments> moments;  // one a parameter; undefined tensors before materialize() or the first step
};

class Optimizer {
 public:
  // Groups: the first pattern that is found in a name takes the parameter. Throws ValueError when a pattern
  // matches nothing ("Optimizer param_groups pattern '...' matched no parameters") or a parameter is in no
  // group, NotImplementedError's text for an unknown optimizer.
  Optimizer(const std::vector<Parameter*>& parameters, const config::Optimizer& options);

  std::vector<ParameterGroup>& groups() { return groups_; }
  const config::Optimizer& options() const { return options_; }
  // Moments of zeros and step 0 where there are none, for a checkpoint to be read into.
  void materialize();
  // Gradients become undefined.
  void zero_grad();
  // One update of every parameter that has a gradient, with each group's lr.
  void step();

 private:
  config::Optimizer options_;
  std::vector<ParameterGroup> groups_;
};

// Norm over all gradients (2-norm), before scaling every gradient by min(1, max_norm / (norm + 1e-6)).
// Deterministic: does not depend on the number of threads.
// `shards`: the ranks that hold the other parts of the parameters; null with one process.
double clip_gradients(const std::vector<Parameter*>& parameters, double max_norm, Group* shards = nullptr);

// Moves each balanced layer's expert bias by `coeff` towards even load, and zeroes the counts (spec training,
// section 11).
// `ranks`: those that routed other tokens of the same step, whose counts are added; null with one process.
void update_expert_biases(const std::vector<ExpertLoad*>& loads, double coeff, Group* ranks = nullptr);

// The learning rate's factor before the `index`-th scheduler step, index from 0 (spec training, section 10).
class LrSchedule {
 public:
  LrSchedule(const config::LrScheduler& options, int64_t training_steps);
  double factor(int64_t index) const;
  // What the constructor shortened, as log lines.
  const std::vector<std::string>& warnings() const { return warnings_; }
  int64_t warmup_steps() const { return warmup_; }

 private:
  int64_t warmup_ = 0, stable_ = 0, decay_ = 0;
  std::string decay_type_;
  double min_factor_ = 0;
  std::vector<std::string> warnings_;
};

// Applies a schedule to an optimizer: after construction and after each step() or restore(), every group's lr
// is its base rate times factor(last_epoch).
class LrScheduler {
 public:
  LrScheduler(LrSchedule schedule, Optimizer& optimizer);
  void step();
  int64_t last_epoch() const { return last_epoch_; }
  void restore(int64_t last_epoch);

 private:
  LrSchedule schedule_;
  Optimizer& optimizer_;
  int64_t last_epoch_ = 0;
};

}  // namespace milepost::train
