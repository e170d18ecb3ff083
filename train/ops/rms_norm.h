// x / sqrt(mean(x^2) + eps) * weight over the last dimension, computed in float32, result in x's dtype; keeps
// x and one float32 a row for the backward pass. Root mean square layer normalisation, arXiv:1910.07467.
#pragma once

#include "train/torch.h"

namespace milepost::train {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace milepost::train
