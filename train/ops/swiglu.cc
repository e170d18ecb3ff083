#include "train/ops/swiglu.h"

#include "train/ops/unfused.h"

namespace milepost::train {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return unfused::swiglu(gate, up); }

}  // namespace milepost::train
