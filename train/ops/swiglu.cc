#include "train/ops/swiglu.h"

#include "train/ops/kernels/swiglu.h"
#include "train/ops/tensor_rows.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// gate and up may be halves of one product, so rows have strides.
at::Tensor as_rows(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.flatten(0, -2);
  return rows.stride(1) == 1 ? rows : rows.contiguous();
}

class SwiGlu : public torch::autograd::Function<SwiGlu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor gate_TF = as_rows(gate), up_TF = as_rows(up);
    at::Tensor out_TF = at::empty(gate_TF.sizes(), gate_TF.options());
    with_element_type("swiglu", gate.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const int64_t width = gate_TF.size(1);
      at::parallel_for(0, gate_TF.size(0), rows_per_task(width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          kernels::swiglu_forward(const_data<T>(gate_TF) + row * gate_TF.stride(0),
                                  const_data<T>(up_TF) + row * up_TF.stride(0), data<T>(out_TF) + row * width,
                                  width);
        }
      });
    });
    context->save_for_backward({gate, up});
    return out_TF.view(gate.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gate_TF = as_rows(saved[0]), up_TF = as_rows(saved[1]), dout_TF = as_rows(gradients[0]);
    at::Tensor dgate_TF = at::empty(gate_TF.sizes(), gate_TF.options()), dup_TF = at::empty_like(dgate_TF);
    with_element_type("swiglu", gate_TF.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const int64_t width = gate_TF.size(1);
      at::parallel_for(0, gate_TF.size(0), rows_per_task(width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          kernels::swiglu_backward(const_data<T>(dout_TF) + row * dout_TF.stride(0),
                                   const_data<T>(gate_TF) + row * gate_TF.stride(0),
                                   const_data<T>(up_TF) + row * up_TF.stride(0),
                                   data<T>(dgate_TF) + row * width, data<T>(dup_TF) + row * width,
                                   static_cast<T*>(nullptr), width);
        }
      });
    });
    return {dgate_TF.view(saved[0].sizes()), dup_TF.view(saved[1].sizes())};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (!gate.device().is_cpu() || gate.dim() < 2 || gate.scalar_type() != up.scalar_type()) {
    return unfused::swiglu(gate, up);
  }
  return SwiGlu::apply(gate, up);
}

}  // namespace milepost::train
