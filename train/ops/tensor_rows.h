// How operations hand tensors to kernels: element types, dense copies, rows. Private to train/ops.
#pragma once

#include <fmt/format.h>

#include <type_traits>

#include "milepost/base/error.h"
#include "train/ops/kernels/simd.h"
#include "train/torch.h"

namespace milepost::train {

// Calls f with a null pointer of the kernels' element type: float or BFloat16. Throws ValueError for other
// dtypes (kUnsupported), naming the operation.
template <class F>
void with_element_type(const char* operation, at::ScalarType dtype, const F& f) {
  if (dtype == at::kFloat) return f(static_cast<float*>(nullptr));
  if (dtype == at::kBFloat16) return f(static_cast<BFloat16*>(nullptr));
  throw ValueError(fmt::format("{} takes float32 or bfloat16, not {}", operation, at::toString(dtype)), {},
                   ErrorCode::kUnsupported);
}

template <class T>
T* data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}
template <class T>
const T* const_data(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Elements that a thread should have at least; below it, one thread does all.
inline int64_t rows_per_task(int64_t row_length) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_length));
}

}  // namespace milepost::train
