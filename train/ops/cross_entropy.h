// Sum over rows of logsumexp(logits) - logits[label] in float32, rows with label -100 left out.
#pragma once

#include "train/torch.h"

namespace milepost::train {

// logits [T, V] (float32 or bfloat16), labels int64 [T] -> float32 scalar. The gradient is made in the
// forward pass, in the dtype of the logits, in place of them: `logits` must not be used afterwards. Throws
// ValueError for a label outside [0, V) other than -100.
at::Tensor cross_entropy_sum(const at::Tensor& logits_TV, const at::Tensor& labels_T);

}  // namespace milepost::train
