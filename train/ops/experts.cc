// Forward: for each block of an expert's rows, gate and up products, silu(gate) * up, and the last product,
// while the block is in cache; then each token adds its rows, in the order of the experts. Kept for the
// backward pass: x, weights, gate, up and the experts' results.
#include "train/ops/experts.h"

#include <algorithm>
#include <vector>

#include "train/ops/expert_order.h"
#include "train/ops/grouped_gemm.h"
#include "train/ops/kernels/rows.h"
#include "train/ops/kernels/swiglu.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBlockRows = 64;

// What both passes know. X is the dtype of tokens, T that of products; all tensors are dense.
struct Experts {
  ExpertOrder order;
  at::Tensor x_TD, w1_EFD, w2_EDF, w3_EFD, weights_TK;  // weights of the experts in dtype T
  at::Tensor gate_RF, up_RF, out_RD;                    // dtype T

  int64_t dim() const { return x_TD.size(1); }
  int64_t hidden() const { return w1_EFD.size(1); }
  float weight_of_row(int64_t row) const {
    return const_data<float>(weights_TK)[order.pair_of_row[static_cast<size_t>(row)]];
  }
};

// The tokens of rows [begin, end), cast to T.
template <class X, class T>
void gather(const Experts& experts, int64_t begin, int64_t end, T* rows_RD) {
  const int64_t dim = experts.dim();
  for (int64_t row = begin; row < end; ++row, rows_RD += dim) {
    kernels::cast_row(const_data<X>(experts.x_TD) + experts.order.token_of_row(row) * dim, rows_RD, dim);
  }
}

// to[t] = sum over the token's rows of (row * factor, kept as X), in the order of the rows.
template <class X, class T, class Factor>
void add_per_token(const ExpertOrder& order, const at::Tensor& rows_RD, const at::Tensor& to_TD,
                   const Factor& factor) {
  const int64_t dim = rows_RD.size(1);
  at::parallel_for(0, order.num_tokens, rows_per_task(dim), [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(dim));
    for (int64_t token = begin; token < end; ++token) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (int64_t k = token * order.top_k; k < (token + 1) * order.top_k; ++k) {
        const int64_t row = order.rows_of_token[static_cast<size_t>(k)];
        kernels::add_scaled_row(const_data<T>(rows_RD) + row * dim, factor(row),
                                static_cast<const X*>(nullptr), sum.data(), dim);
      }
      kernels::cast_row(sum.data(), data<X>(to_TD) + token * dim, dim);
    }
  });
}

template <class X, class T>
at::Tensor forward_pass(Experts& experts) {
  const int64_t dim = experts.dim(), hidden = experts.hidden(), rows = experts.order.num_rows();
  const at::TensorOptions options = experts.w1_EFD.options();
  const auto w1 = transposed_panels<T>(experts.w1_EFD), w3 = transposed_panels<T>(experts.w3_EFD);
  const auto w2 = transposed_panels<T>(experts.w2_EDF);
  experts.gate_RF = at::empty({rows, hidden}, options);
  experts.up_RF = at::empty({rows, hidden}, options);
  experts.out_RD = at::empty({rows, dim}, options);
  const std::vector<ExpertRows> tasks = experts.order.tasks(kBlockRows);
  at::parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<T> in(static_cast<size_t>(kBlockRows * dim)),
        middle(static_cast<size_t>(kBlockRows * hidden));
    std::vector<float> sums(static_cast<size_t>(kBlockRows * std::max(dim, hidden)));
    for (int64_t i = begin; i < end; ++i) {
      const auto [expert, first, last] = tasks[static_cast<size_t>(i)];
      const int64_t count = last - first;
      T* gate = data<T>(experts.gate_RF) + first * hidden;
      T* up = data<T>(experts.up_RF) + first * hidden;
      gather<X>(experts, first, last, in.data());
      multiply(in.data(), count, w1, expert, sums.data());
      kernels::cast_row(sums.data(), gate, count * hidden);
      multiply(in.data(), count, w3, expert, sums.data());
      kernels::cast_row(sums.data(), up, count * hidden);
      kernels::swiglu_forward(gate, up, middle.data(), count * hidden);
      multiply(middle.data(), count, w2, expert, sums.data());
      kernels::cast_row(sums.data(), data<T>(experts.out_RD) + first * dim, count * dim);
    }
  });
  at::Tensor result_TD = at::empty_like(experts.x_TD);
  add_per_token<X, T>(experts.order, experts.out_RD, result_TD,
                      [&](int64_t row) { return experts.weight_of_row(row); });
  return result_TD;
}

struct Gradients {
  at::Tensor x_TD, w1_EFD, w2_EDF, w3_EFD, weights_TK;
};

template <class X, class T>
Gradients backward_pass(const Experts& experts, const at::Tensor& dout_TD) {
  const int64_t dim = experts.dim(), hidden = experts.hidden(), rows = experts.order.num_rows();
  const at::TensorOptions options = experts.w1_EFD.options();
  const auto w1 = plain_panels<T>(experts.w1_EFD), w3 = plain_panels<T>(experts.w3_EFD);
  const auto w2 = plain_panels<T>(experts.w2_EDF);
  at::Tensor in_RD = at::empty({rows, dim}, options), dout_RD = at::empty({rows, dim}, options);
  at::Tensor din_RD = at::empty({rows, dim}, experts.x_TD.options()),
             middle_RF = at::empty({rows, hidden}, options);
  at::Tensor dgate_RF = at::empty({rows, hidden}, options), dup_RF = at::empty({rows, hidden}, options);
  Gradients result{at::empty_like(experts.x_TD), {}, {}, {}, at::empty_like(experts.weights_TK)};
  const std::vector<ExpertRows> tasks = experts.order.tasks(kBlockRows);
  at::parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<T> dmiddle(static_cast<size_t>(kBlockRows * hidden)),
        rounded(static_cast<size_t>(kBlockRows * dim));
    std::vector<float> sums(static_cast<size_t>(kBlockRows * std::max(dim, hidden))), more = sums;
    for (int64_t i = begin; i < end; ++i) {
      const auto [expert, first, last] = tasks[static_cast<size_t>(i)];
      const int64_t count = last - first, wide = first * dim, narrow = first * hidden;
      gather<X>(experts, first, last, data<T>(in_RD) + wide);
      for (int64_t row = first; row < last; ++row) {
        const X* dout = const_data<X>(dout_TD) + experts.order.token_of_row(row) * dim;
        data<float>(result.weights_TK)[experts.order.pair_of_row[static_cast<size_t>(row)]] =
            kernels::dot_rows(dout, const_data<T>(experts.out_RD) + row * dim, dim);
        kernels::scale_row(dout, experts.weight_of_row(row), data<T>(dout_RD) + row * dim, dim);
      }
      multiply(const_data<T>(dout_RD) + wide, count, w2, expert, sums.data());
      kernels::cast_row(sums.data(), dmiddle.data(), count * hidden);
      kernels::swiglu_backward(dmiddle.data(), const_data<T>(experts.gate_RF) + narrow,
                               const_data<T>(experts.up_RF) + narrow, data<T>(dgate_RF) + narrow,
                               data<T>(dup_RF) + narrow, data<T>(middle_RF) + narrow, count * hidden);
      multiply(const_data<T>(dgate_RF) + narrow, count, w1, expert, sums.data());
      multiply(const_data<T>(dup_RF) + narrow, count, w3, expert, more.data());
      // The reference casts tokens once for each of the two products, so their gradients meet in X.
      if constexpr (!std::is_same_v<X, T>) {
        for (std::vector<float>* part : {&sums, &more}) {
          kernels::cast_row(part->data(), rounded.data(), count * dim);
          kernels::cast_row(rounded.data(), part->data(), count * dim);
        }
      }
      kernels::add_rows(sums.data(), more.data(), data<X>(din_RD) + wide, count * dim);
    }
  });
  add_per_token<X, X>(experts.order, din_RD, result.x_TD, [](int64_t) { return 1.0F; });
  const at::ScalarType dtype = experts.w1_EFD.scalar_type();
  const auto in = row_panels<T>(in_RD, experts.order);
  result.w1_EFD = row_products(row_panels<T>(dgate_RF, experts.order), in, dtype);
  result.w3_EFD = row_products(row_panels<T>(dup_RF, experts.order), in, dtype);
  result.w2_EDF =
      row_products(row_panels<T>(dout_RD, experts.order), row_panels<T>(middle_RF, experts.order), dtype);
  return result;
}

// Calls f with null pointers of the dtypes of tokens and of products.
template <class F>
void with_dtypes(const Experts& experts, const F& f) {
  const bool is_bf16 = experts.w1_EFD.scalar_type() == at::kBFloat16;
  with_element_type("routed_experts", experts.x_TD.scalar_type(), [&](auto* x_type) {
    using X = std::remove_pointer_t<decltype(x_type)>;
    if constexpr (std::is_same_v<X, float>) {
      if (!is_bf16) return f(x_type, static_cast<float*>(nullptr));
    }
    f(x_type, static_cast<BFloat16*>(nullptr));
  });
}

// What a pass works on, from the operation's arguments.
Experts prepare(const at::Tensor& x_TD, const at::Tensor& w1_EFD, const at::Tensor& w2_EDF,
                const at::Tensor& w3_EFD, const at::Tensor& weights_TK, const at::Tensor& ids_TK, bool bf16) {
  const at::ScalarType dtype = bf16 ? at::kBFloat16 : x_TD.scalar_type();
  const auto dense = [&](const at::Tensor& weight) { return weight.to(dtype).contiguous(); };
  return {order_by_expert(ids_TK.const_data_ptr<int64_t>(), ids_TK.size(0), ids_TK.size(1), w1_EFD.size(0)),
          x_TD.contiguous(),
          dense(w1_EFD),
          dense(w2_EDF),
          dense(w3_EFD),
          weights_TK.to(at::kFloat).contiguous(),
          {},
          {},
          {}};
}

class RoutedExperts : public torch::autograd::Function<RoutedExperts> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TD, const at::Tensor& w1_EFD,
                            const at::Tensor& w2_EDF, const at::Tensor& w3_EFD, const at::Tensor& weights_TK,
                            const at::Tensor& ids_TK, bool bf16) {
    Experts experts = prepare(x_TD, w1_EFD, w2_EDF, w3_EFD, weights_TK, ids_TK, bf16);
    at::Tensor result_TD;
    with_dtypes(experts, [&](auto* x_type, auto* type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using T = std::remove_pointer_t<decltype(type)>;
      result_TD = forward_pass<X, T>(experts);
    });
    context->save_for_backward(
        {x_TD, w1_EFD, w2_EDF, w3_EFD, weights_TK, ids_TK, experts.gate_RF, experts.up_RF, experts.out_RD});
    context->saved_data["bf16"] = bf16;
    return result_TD;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    Experts experts = prepare(saved[0], saved[1], saved[2], saved[3], saved[4], saved[5],
                              context->saved_data["bf16"].toBool());
    experts.gate_RF = saved[6];
    experts.up_RF = saved[7];
    experts.out_RD = saved[8];
    Gradients result;
    with_dtypes(experts, [&](auto* x_type, auto* type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using T = std::remove_pointer_t<decltype(type)>;
      result = backward_pass<X, T>(experts, gradients[0].contiguous());
    });
    return {result.x_TD,
            result.w1_EFD.to(saved[1].scalar_type()),
            result.w2_EDF.to(saved[2].scalar_type()),
            result.w3_EFD.to(saved[3].scalar_type()),
            result.weights_TK.to(saved[4].scalar_type()),
            {},
            {}};
  }
};

}  // namespace

at::Tensor count_experts(const at::Tensor& expert_ids_TK, int64_t num_experts) {
  const at::Tensor ids = expert_ids_TK.to(at::kCPU).contiguous();
  const ExpertOrder order =
      order_by_expert(ids.const_data_ptr<int64_t>(), ids.numel(), /*top_k=*/1, num_experts);
  at::Tensor counts_E = at::empty({num_experts}, at::kLong);
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    data<int64_t>(counts_E)[expert] = order.num_rows_of(expert);
  }
  return counts_E.to(expert_ids_TK.device());
}

at::Tensor routed_experts(const at::Tensor& x_TD, const at::Tensor& w1_EFD, const at::Tensor& w2_EDF,
                          const at::Tensor& w3_EFD, const at::Tensor& expert_ids_TK,
                          const at::Tensor& weights_TK, bool bf16) {
  // Pairs along the summed dimension would cross rows of odd length.
  const bool is_odd = x_TD.size(1) % 2 != 0 || w1_EFD.size(1) % 2 != 0;
  if (!x_TD.device().is_cpu() || is_odd) {
    return unfused::routed_experts(x_TD, w1_EFD, w2_EDF, w3_EFD, expert_ids_TK, weights_TK, bf16);
  }
  return RoutedExperts::apply(x_TD, w1_EFD, w2_EDF, w3_EFD, weights_TK, expert_ids_TK.contiguous(), bf16);
}

}  // namespace milepost::train
