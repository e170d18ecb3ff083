// Folders of known right answers for a tiny model (tests/data/numerics/README.md): what to build and how to
// train it, and the numbers that must come out.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "milepost/config/trainer.h"
#include "milepost/engine/checkpoint.h"
#include "train/models/model.h"

namespace milepost::train {

struct Fixture {
  std::string folder;
  config::Trainer trainer;                    // model, training, optimizer, schedule and loss
  std::vector<Batch> batches;                 // used in order, over and over
  std::shared_ptr<const Checkpoint> weights;  // to start from
};

// One reference run.
struct Expected {
  bool fp32_experts = false;
  nlohmann::ordered_json values;
  std::map<std::string, at::Tensor> tensors;  // float32, or int64 for integers
};

// Throws StorageError or FormatError for a file that is missing or damaged, ValueError (path set) for a
// variant.json that describes no model and for batches that do not fit it.
Fixture read_fixture(const std::string& folder);

// `expected.*`, then `expected_fp32experts.*`: those that are there. Throws as read_fixture(), and when there
// is none.
std::vector<Expected> read_expected(const std::string& folder);

// The model's parameters and saved buffers from a checkpoint of one file. Throws what load() throws: all
// differences of names and shapes at once.
void load_weights(const std::shared_ptr<const Checkpoint>& weights, Model& model);

}  // namespace milepost::train
