#include "train/ops/linear.h"

#include <gtest/gtest.h>

#include "train/torch.h"

namespace milepost::train {
namespace {

double difference(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

void compare(at::IntArrayRef x_sizes, int64_t out) {
  const at::Tensor x = at::randn(x_sizes).requires_grad_();
  const at::Tensor weight = at::randn({out, x.size(-1)}).requires_grad_();
  const at::Tensor y = train::linear(x, weight), want = at::linear(x, weight);
  EXPECT_LT(difference(y, want), 1e-5);
  const at::Tensor dy = at::randn(want.sizes());
  const auto gradients = torch::autograd::grad({y}, {x, weight}, {dy});
  const auto expected = torch::autograd::grad({want}, {x, weight}, {dy});
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(difference(gradients[i], expected[i]), 1e-5) << i;
}

TEST(Linear, EqualsATen) {
  at::manual_seed(1);
  compare({2, 3, 5}, 7);       // too small for the kernel
  compare({3, 171, 97}, 401);  // nothing whole
  compare({600, 1100}, 40);    // deeper than a block
  compare({130, 2100}, 2500);  // more than a chunk
}

TEST(Linear, TakesViewsAndOtherTypes) {
  at::manual_seed(2);
  const at::Tensor wide = at::randn({4, 100, 160}), weight = at::randn({128, 80});
  const at::Tensor x = wide.narrow(2, 40, 80);
  EXPECT_LT(difference(train::linear(x, weight), at::linear(x, weight)), 1e-5);
  const at::Tensor y = train::linear(x.to(at::kBFloat16), weight.to(at::kBFloat16));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({4, 100, 128}));
}

TEST(Linear, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({300, 700}), weight = at::randn({500, 700});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = train::linear(x, weight);
  at::set_num_threads(2);
  EXPECT_TRUE(at::equal(one, train::linear(x, weight)));
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace milepost::train
