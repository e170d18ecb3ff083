#include "train/ops/linear.h"

#include "train/ops/kernels/cpu_features.h"
#include "train/ops/kernels/matrix_product.h"
#include "train/ops/kernels/scratch.h"
#include "train/ops/run_tasks.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void multiply(const MatrixProduct& product) {
  thread_local Scratch scratch;
  float* packed = scratch.get<float>(packed_size(product));
  for (int64_t chunk = 0; chunk < num_chunks(product); ++chunk) {
    run_tasks(num_pack_parts(product, chunk),
              [&](int64_t part) { pack_product(product, chunk, part, packed); });
    run_tasks(num_blocks(product, chunk),
              [&](int64_t block) { multiply_product(product, chunk, block, packed); });
  }
}

MatrixRows rows_of(const at::Tensor& x, bool is_transposed = false) {
  return {x.const_data_ptr<float>(), x.size(1), is_transposed};
}

class Linear : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TI, const at::Tensor& weight_OI) {
    context->save_for_backward({x_TI, weight_OI});
    const at::Tensor y_TO = at::empty({x_TI.size(0), weight_OI.size(0)}, x_TI.options());
    multiply({y_TO.size(0), y_TO.size(1), x_TI.size(1), rows_of(x_TI), rows_of(weight_OI, true),
              y_TO.data_ptr<float>()});
    return y_TO;
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x_TI = saved[0], &weight_OI = saved[1];
    const at::Tensor dy_TO = gradients[0].contiguous();
    at::Tensor dx_TI, dw_OI;
    if (context->needs_input_grad(0)) {
      dx_TI = at::empty(x_TI.sizes(), x_TI.options());
      multiply({x_TI.size(0), x_TI.size(1), dy_TO.size(1), rows_of(dy_TO), rows_of(weight_OI),
                dx_TI.data_ptr<float>()});
    }
    if (context->needs_input_grad(1)) {
      dw_OI = at::empty(weight_OI.sizes(), weight_OI.options());
      multiply({weight_OI.size(0), weight_OI.size(1), x_TI.size(0), rows_of(dy_TO, true), rows_of(x_TI),
                dw_OI.data_ptr<float>()});
    }
    return {dx_TI, dw_OI};
  }
};

// Beside the BLAS of torch's wheel, float32, one thread of an AMD EPYC with a peak of 115 GFLOP/s, 2048 rows:
// ours 98 to 106 forward and 95 to 102 backward, its 91 to 97 and 89 to 98. In bfloat16 its own reaches 90 %
// of the peak.
bool is_ours(const at::Tensor& x, const at::Tensor& weight_OI) {
  return has_avx512() && x.is_cpu() && weight_OI.is_cpu() && x.scalar_type() == at::kFloat &&
         weight_OI.scalar_type() == at::kFloat && weight_OI.dim() == 2 && x.dim() >= 1 &&
         x.size(-1) == weight_OI.size(1) && x.numel() * weight_OI.size(0) >= (int64_t{1} << 20);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight_OI) {
  if (!is_ours(x, weight_OI)) return at::linear(x, weight_OI);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight_OI.size(0);
  return Linear::apply(x.reshape({-1, x.size(-1)}).contiguous(), weight_OI.contiguous()).view(sizes);
}

}  // namespace milepost::train
