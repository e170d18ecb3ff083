#include "train/models/token_shift.h"

#include <algorithm>

namespace milepost::train {

at::Tensor follows_by(const at::Tensor& positions_BL, int64_t depth) {
  const int64_t length = positions_BL.size(1), kept = std::max<int64_t>(0, length - depth);
  at::Tensor follows = at::zeros(positions_BL.sizes(), positions_BL.options().dtype(at::kBool));
  const at::Tensor later = positions_BL.narrow(1, length - kept, kept);
  follows.narrow(1, 0, kept).copy_(later.eq(positions_BL.narrow(1, 0, kept) + depth));
  return follows;
}

at::Tensor shifted_by(const at::Tensor& values_BL, const at::Tensor& follows_BL, int64_t depth,
                      int64_t otherwise) {
  const int64_t length = values_BL.size(1), kept = std::max<int64_t>(0, length - depth);
  at::Tensor later = at::full_like(values_BL, otherwise);
  later.narrow(1, 0, kept).copy_(values_BL.narrow(1, length - kept, kept));
  return later.masked_fill_(follows_BL.logical_not(), otherwise);
}

}  // namespace milepost::train
