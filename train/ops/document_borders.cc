#include "train/ops/attention.h"

namespace milepost::train {

std::shared_ptr<const DocumentBorders> document_borders(const at::Tensor& positions_BL) {
  const at::Tensor positions = positions_BL.to(at::kCPU, at::kLong).contiguous();
  auto borders = std::make_shared<DocumentBorders>();
  borders->batch = positions.size(0);
  borders->length = positions.size(1);
  borders->begin_BL.resize(static_cast<size_t>(positions.numel()));
  const int64_t* position = positions.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < borders->batch; ++row) {
    int32_t begin = 0;
    for (int64_t i = 0; i < borders->length; ++i) {
      const int64_t at = row * borders->length + i;
      if (position[at] == 0) begin = static_cast<int32_t>(i);
      borders->begin_BL[static_cast<size_t>(at)] = begin;
    }
  }
  return borders;
}

}  // namespace milepost::train
