#include "train/models/parameter.h"

namespace milepost::train {

at::Tensor part_view(const at::Tensor& tensor, const SavedPart& part) {
  return tensor.unflatten(0, {-1, part.period_rows}).narrow(1, part.first_row, part.num_rows);
}

}  // namespace milepost::train
