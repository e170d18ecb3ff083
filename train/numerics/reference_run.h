// A training run on a fixture, recorded in the form in which a fixture holds its expected results.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "train/numerics/fixture.h"

namespace milepost::train {

struct Recorded {
  nlohmann::ordered_json values;              // as expected.json
  std::map<std::string, at::Tensor> tensors;  // as expected.safetensors, for the names in `wanted_tensors`
};

// One evaluation of batch 0, then all steps. Gradients and parameters are recorded at the steps for which
// `expected` has them. Throws what building and training the model throws.
Recorded run_fixture(const Fixture& fixture, const Expected& expected);

}  // namespace milepost::train
