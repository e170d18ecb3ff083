// Looking ahead within documents, for multi-token prediction (spec training, section 7).
#pragma once

#include <cstdint>

#include "train/torch.h"

namespace milepost::train {

// Bool [B, L]: whether position i + depth is in the same row and document as position i.
at::Tensor follows_by(const at::Tensor& positions_BL, int64_t depth);

// values[i + depth] where that follows i, else `otherwise`. int64 [B, L].
at::Tensor shifted_by(const at::Tensor& values_BL, const at::Tensor& follows_BL, int64_t depth,
                      int64_t otherwise);

}  // namespace milepost::train
