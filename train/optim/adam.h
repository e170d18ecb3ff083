// One step of Adam or AdamW on one parameter, in place.
#pragma once

#include "train/optim/optimizer.h"

namespace milepost::train {

// `group` gives the kind and its settings, the rate in use among them; `moments.step` counts on. All tensors
// are dense and of the parameter's shape; parameter and gradient are float32 or bfloat16, moments of the same
// dtype or bfloat16. Same bits for any number of threads.
void adam_step(const ParameterGroup& group, const at::Tensor& parameter, const at::Tensor& gradient,
               const Moments& moments);

}  // namespace milepost::train
