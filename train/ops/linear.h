// Products with a weight stored as PyTorch's Linear stores it, [out, in].
#pragma once

#include "train/torch.h"

namespace milepost::train {

// x [..., I] times weight [O, I] transposed -> [..., O], in x's dtype, which must be the weight's; sums run
// in float32. Gradients to both. Same bits for any number of threads.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight_OI);

}  // namespace milepost::train
