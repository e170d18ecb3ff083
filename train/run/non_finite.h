// Values that are not finite, and where they came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/models/parameter.h"
#include "train/run/training.h"

namespace milepost::train {

// The first parameter, in the model's order, with a value that is not finite; else the first with such a
// gradient: "the gradient of layers.3.attention.wo.weight". nullopt where all is finite. Cost: reads
// everything once.
std::optional<std::string> first_non_finite(const std::vector<Parameter*>& parameters);

// Throws NonFiniteError where `loss` or, unless it is nullopt, `grad_norm` is not finite: names the step and
// first_non_finite. Free where both are finite. Requires: gradients were not scaled since.
void check_finite(int64_t step, double loss, std::optional<double> grad_norm,
                  const std::vector<Parameter*>& parameters);

}  // namespace milepost::train
