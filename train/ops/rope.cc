#include "train/ops/rope.h"

#include "train/ops/unfused.h"

namespace milepost::train {

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions_BL) {
  return unfused::apply_rope(x, table, positions_BL);
}

}  // namespace milepost::train
