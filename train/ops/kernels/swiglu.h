// silu(gate) * up on `count` elements; see ops/swiglu.h. T is float or BFloat16. With BFloat16, silu(gate) is
// rounded before the product, and so are its gradients, as in separate operations.
#pragma once

#include <cstdint>

#include "train/ops/kernels/simd.h"

namespace milepost::train::kernels {

template <class T>
void swiglu_forward(const T* gate, const T* up, T* out, int64_t count);

// `hidden`, where it is not null, receives the forward pass's result once more.
template <class T>
void swiglu_backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup, T* hidden, int64_t count);

}  // namespace milepost::train::kernels
