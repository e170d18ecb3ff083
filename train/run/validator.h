// Loss on other text, without a gradient (spec training, section 15).
#pragma once

#include <memory>
#include <optional>

#include "milepost/config/trainer.h"
#include "milepost/data/prefetch.h"
#include "train/models/model.h"
#include "train/parallel/collectives.h"
#include "train/run/run_data.h"

namespace milepost::train {

struct ValidationResult {
  double loss = 0;  // mean over all valid labels
  int64_t num_tokens = 0;
  double seconds = 0;
};

class Validator {
 public:
  // Opens the data, so that what is wrong with them shows before training. The model and the execution, which
  // outlive the validator, are used as training does. Throws what open_validation_data throws.
  Validator(const config::Trainer& config, const DataRank& rank, Model& model, Execution& execution,
            at::Device device, Group* ranks);

  // Whether `step` is followed by a validation.
  bool is_due(int64_t step) const;
  // From the beginning of the data. nullopt when a signal asked to stop meanwhile. Throws ValueError when the
  // data fill no batch.
  std::optional<ValidationResult> run();

 private:
  struct Verdict {
    bool is_stopped, is_over;
  };
  Verdict agree(bool is_stopped, bool is_over) const;

  config::Trainer config_;
  DataRank rank_;
  Model& model_;
  Execution& execution_;
  at::Device device_;
  Group* ranks_;                              // that validate on other text; null with one process
  std::unique_ptr<data::Prefetcher> opened_;  // for the first run
};

}  // namespace milepost::train
