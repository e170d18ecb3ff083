// Sum over rows of logsumexp(logits) - logits[label] in float32, rows with label -100 left out.
#pragma once

#include "train/torch.h"

namespace milepost::train {

// logits [T, V] (float32 or bfloat16), labels int64 [T] -> float32 scalar. The backward pass makes the
// gradient in place of the logits, in their dtype: nobody may use `logits` then, and it runs once. No copy of
// the logits in float32 is ever made. Throws ValueError for a label outside [0, V) other than -100. The sum
// is taken in the rows' order.
at::Tensor cross_entropy_sum(const at::Tensor& logits_TV, const at::Tensor& labels_T);

}  // namespace milepost::train
