// silu(gate) * up, in one pass each way; keeps gate and up only. "GLU Variants Improve Transformer",
// arXiv:2002.05202.
#pragma once

#include "train/torch.h"

namespace milepost::train {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace milepost::train
