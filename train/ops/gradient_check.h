// For tests of operations: gradients against finite differences, and a fused operation against its unfused
// form.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "train/torch.h"

namespace milepost::train {

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Result {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

// The operation and its gradients, with `weights` (of the output's shape) as the output's gradient.
inline Result run_both_ways(const Operation& operation, const std::vector<at::Tensor>& inputs,
                            const at::Tensor& weights) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone().requires_grad_(input.is_floating_point()));
  }
  const at::Tensor output = operation(leaves);
  output.backward(weights.to(output.scalar_type()));
  Result result{output.detach().clone(), {}};
  for (const at::Tensor& leaf : leaves) result.gradients.push_back(leaf.grad());
  return result;
}

inline double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
  return ((wide_a - wide_b).norm() / (wide_b.norm() + 1e-12)).item<double>();
}

inline void expect_near(const Result& got, const Result& expected, double tolerance) {
  ASSERT_EQ(got.output.sizes(), expected.output.sizes());
  ASSERT_EQ(got.output.scalar_type(), expected.output.scalar_type());
  EXPECT_LT(relative_distance(got.output, expected.output), tolerance);
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    ASSERT_EQ(got.gradients[i].defined(), expected.gradients[i].defined()) << "input " << i;
    if (!got.gradients[i].defined()) continue;
    ASSERT_EQ(got.gradients[i].sizes(), expected.gradients[i].sizes()) << "input " << i;
    ASSERT_EQ(got.gradients[i].scalar_type(), expected.gradients[i].scalar_type()) << "input " << i;
    EXPECT_LT(relative_distance(got.gradients[i], expected.gradients[i]), tolerance) << "input " << i;
  }
}

inline void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_TRUE(at::equal(a.output, b.output));
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (!a.gradients[i].defined()) continue;
    EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << "input " << i;
  }
}

// One and two threads give the same bits.
inline void expect_thread_independence(const Operation& operation, const std::vector<at::Tensor>& inputs,
                                       const at::Tensor& weights) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Result alone = run_both_ways(operation, inputs, weights);
  at::set_num_threads(2);
  expect_same_bits(run_both_ways(operation, inputs, weights), alone);
  at::set_num_threads(threads);
}

// Each float32 input's gradient along a random direction, against central differences of the weighted output.
inline void expect_finite_differences(const Operation& operation, const std::vector<at::Tensor>& inputs,
                                      const at::Tensor& weights, double tolerance, double step = 1e-2) {
  const Result result = run_both_ways(operation, inputs, weights);
  const at::NoGradGuard no_grad;
  const auto value = [&](size_t moved, const at::Tensor& by) {
    std::vector<at::Tensor> at;
    for (size_t i = 0; i < inputs.size(); ++i) at.push_back(i == moved ? inputs[i] + by : inputs[i].clone());
    return (operation(at).to(at::kDouble) * weights.to(at::kDouble)).sum().item<double>();
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    const at::Tensor direction = at::randn_like(inputs[i]);
    const double slope = (value(i, direction * step) - value(i, direction * -step)) / (2 * step);
    const double expected =
        (result.gradients[i].to(at::kDouble) * direction.to(at::kDouble)).sum().item<double>();
    EXPECT_NEAR(slope, expected, tolerance * (std::abs(expected) + result.gradients[i].norm().item<double>()))
        << "input " << i;
  }
}

}  // namespace milepost::train
