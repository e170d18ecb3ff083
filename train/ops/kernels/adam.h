// One pass over a parameter, its gradient and both moments: Adam (arXiv:1412.6980) with coupled or decoupled
// (arXiv:1711.05101) weight decay, in PyTorch's order of operations.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

struct AdamStep {
  float kept = 1;                     // parameter *= kept: 1 - lr * weight_decay, decoupled
  float coupled_decay = 0;            // gradient += coupled_decay * parameter
  float first_share = 0;              // 1 - beta1
  float beta2 = 0, second_share = 0;  // second_share: 1 - beta2
  float step_size = 0;                // lr / (1 - beta1^t)
  float second_correction = 1;        // sqrt(1 - beta2^t)
  float eps = 0;
};

// P: dtype of parameter and gradient, M: of both moments; float or BFloat16. Computes in float32 and rounds
// to the nearest; the parameter moves by the moments as they were before rounding.
template <class P, class M>
void adam_step(const AdamStep& step, P* parameter, const P* gradient, M* exp_avg, M* exp_avg_sq,
               int64_t count);

}  // namespace milepost::train::kernels
