#include "train/ops/rms_norm.h"

#include <algorithm>

#include "train/ops/kernels/rms_norm.h"
#include "train/ops/tensor_rows.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows whose part of dweight is added up in one go: fixed, so that the sum does not depend on threads.
constexpr int64_t kBlockRows = 64;

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& any_x, const at::Tensor& any_weight,
                            double eps) {
    const at::Tensor x = any_x.contiguous(), weight = any_weight.contiguous();
    const int64_t dim = weight.numel(), rows = x.numel() / std::max<int64_t>(1, dim);
    at::Tensor y = at::empty_like(x), inverse = at::empty({rows}, x.options().dtype(at::kFloat));
    with_element_type("rms_norm", x.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, rows, rows_per_task(dim), [&](int64_t begin, int64_t end) {
        kernels::rms_norm_forward(const_data<T>(x) + begin * dim, const_data<T>(weight),
                                  data<T>(y) + begin * dim, data<float>(inverse) + begin, end - begin, dim,
                                  static_cast<float>(eps));
      });
    });
    context->save_for_backward({x, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    const int64_t dim = weight.numel(), rows = inverse.numel(), blocks = (rows + kBlockRows - 1) / kBlockRows;
    at::Tensor dx = at::empty_like(x), parts = at::empty({blocks, dim}, inverse.options());
    with_element_type("rms_norm", x.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t row = block * kBlockRows, at = row * dim;
          kernels::rms_norm_backward(const_data<T>(dy) + at, const_data<T>(x) + at, const_data<T>(weight),
                                     const_data<float>(inverse) + row, data<T>(dx) + at,
                                     data<float>(parts) + block * dim, std::min(kBlockRows, rows - row), dim);
        }
      });
    });
    return {dx, add_rows(parts).to(weight.scalar_type()), {}};
  }

 private:
  static at::Tensor add_rows(const at::Tensor& parts) {
    at::Tensor total = at::zeros({parts.size(1)}, parts.options());
    float* sum = data<float>(total);
    const float* part = const_data<float>(parts);
    for (int64_t row = 0; row < parts.size(0); ++row, part += total.numel()) {
      for (int64_t i = 0; i < total.numel(); ++i) sum[i] += part[i];
    }
    return total;
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!x.device().is_cpu() || x.scalar_type() != weight.scalar_type()) {
    return unfused::rms_norm(x, weight, eps);
  }
  return RmsNorm::apply(x, weight, eps);
}

}  // namespace milepost::train
