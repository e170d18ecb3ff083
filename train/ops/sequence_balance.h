// Sequence-wise balance of experts: an auxiliary loss over each sequence that pushes the router's scores
// towards even load (DeepSeek-V3, arXiv:2412.19437, equations 17 to 20; spec training, section 11b).
//
// Of a sequence with L tokens, E experts and K experts a token: f_e = E / (K L) times the number of its
// (token, slot) pairs that went to e; P_e = mean over its tokens of score_e / (sum of the token's scores);
// the loss is the sum over e of f_e P_e. It is 1 for even load.
#pragma once

#include "train/torch.h"

namespace milepost::train {

struct SequenceBalance {
  at::Tensor scores_BLE;  // the scores given, value for value; their backward pass adds the loss's gradient
  double loss = 0;        // factor * sum over sequences; no gradient
};

// scores [B, L, E] float32, after sigmoid or softmax; expert_ids int64 [B, L, K]; factor: coefficient /
// sequences of the global batch. Counts carry no gradient. The gradient is added whatever the result is used
// for, so the loss needs no place in the total; use the returned scores for everything that follows.
SequenceBalance with_sequence_balance(const at::Tensor& scores_BLE, const at::Tensor& expert_ids_BLK,
                                      double factor);

}  // namespace milepost::train
