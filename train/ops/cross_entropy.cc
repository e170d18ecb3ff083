#include "train/ops/cross_entropy.h"

#include "train/ops/kernels/cross_entropy.h"
#include "train/ops/tensor_rows.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kIgnored = -100;

void check_labels(const at::Tensor& labels_T, int64_t vocab_size) {
  const int64_t* label = labels_T.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < labels_T.numel(); ++row) {
    if (label[row] == kIgnored || (label[row] >= 0 && label[row] < vocab_size)) continue;
    throw ValueError(
        fmt::format("label {} of row {} is outside a vocabulary of {} tokens", label[row], row, vocab_size));
  }
}

class CrossEntropySum : public torch::autograd::Function<CrossEntropySum> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& any_logits,
                            const at::Tensor& labels_T) {
    const at::Tensor logits_TV = any_logits.contiguous();
    const int64_t rows = logits_TV.size(0), width = logits_TV.size(1);
    const int64_t* label = labels_T.const_data_ptr<int64_t>();
    at::Tensor normalizer_T = at::empty({rows}, logits_TV.options().dtype(at::kFloat));
    at::Tensor loss_T = at::zeros({rows}, normalizer_T.options());
    with_element_type("cross_entropy_sum", logits_TV.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          if (label[row] == kIgnored) continue;
          const T* logits = const_data<T>(logits_TV) + row * width;
          const float normalizer = kernels::log_sum_exp(logits, width);
          data<float>(normalizer_T)[row] = normalizer;
          data<float>(loss_T)[row] = normalizer - simd::load_part(logits + label[row], 1)[0];
        }
      });
    });
    context->saved_data["logits"] = logits_TV.detach();
    context->save_for_backward({labels_T, normalizer_T});
    return total(loss_T);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor logits_TV = context->saved_data["logits"].toTensor();
    if (!logits_TV.defined()) throw ValueError("cross_entropy_sum's backward pass runs only once");
    context->saved_data["logits"] = at::Tensor();
    const int64_t rows = logits_TV.size(0), width = logits_TV.size(1);
    const int64_t* label = saved[0].const_data_ptr<int64_t>();
    const float* normalizer = const_data<float>(saved[1]);
    const float scale = gradients[0].item<float>();
    with_element_type("cross_entropy_sum", logits_TV.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          T* logits = data<T>(logits_TV) + row * width;
          if (label[row] == kIgnored) {
            std::fill(logits, logits + width, T{});
          } else {
            kernels::softmax_gradient(logits, width, normalizer[row], label[row], scale);
          }
        }
      });
    });
    return {logits_TV, {}};
  }

 private:
  static at::Tensor total(const at::Tensor& loss_T) {
    double sum = 0;
    for (int64_t row = 0; row < loss_T.numel(); ++row) sum += const_data<float>(loss_T)[row];
    return at::full({}, sum, loss_T.options());
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits_TV, const at::Tensor& labels_T) {
  if (!logits_TV.device().is_cpu()) return unfused::cross_entropy_sum(logits_TV, labels_T);
  const at::Tensor labels = labels_T.contiguous();
  check_labels(labels, logits_TV.size(1));
  return CrossEntropySum::apply(logits_TV, labels);
}

}  // namespace milepost::train
