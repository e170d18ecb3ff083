#include "train/optim/adam.h"

#include <gtest/gtest.h>

namespace milepost::train {
namespace {

struct State {
  at::Tensor parameter;
  Moments moments;
};

State start(at::ScalarType dtype, at::ScalarType moments_dtype) {
  const at::Tensor parameter = at::randn({1237}).to(dtype);
  return {parameter, {at::zeros({}), at::zeros({1237}, moments_dtype), at::zeros({1237}, moments_dtype)}};
}

ParameterGroup group_of(const char* name) {
  config::ParamGroup options;
  options.optimizer_name = name;
  options.optimizer_kwargs = {.lr = 1e-2, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1};
  return {options, 3e-3, {}, {}};
}

void fused_by_torch(const ParameterGroup& group, const State& s, const at::Tensor& gradient) {
  const config::OptimizerKwargs& k = group.options.optimizer_kwargs;
  s.moments.step.add_(1);
  if (group.options.optimizer_name == "AdamW") {
    at::_fused_adamw_({s.parameter}, {gradient}, {s.moments.exp_avg}, {s.moments.exp_avg_sq}, {},
                      {s.moments.step}, group.lr, k.betas[0], k.betas[1], k.weight_decay, k.eps, false,
                      false);
  } else {
    at::_fused_adam_({s.parameter}, {gradient}, {s.moments.exp_avg}, {s.moments.exp_avg_sq}, {},
                     {s.moments.step}, group.lr, k.betas[0], k.betas[1], k.weight_decay, k.eps, false, false);
  }
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs() / (b.to(at::kDouble).abs() + 1e-2))
      .max()
      .item<double>();
}

TEST(Adam, AgreesWithTorch) {
  at::manual_seed(1);
  for (const char* name : {"AdamW", "Adam"}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const ParameterGroup group = group_of(name);
      const State ours = start(dtype, dtype);
      const State theirs{ours.parameter.clone(),
                         {at::zeros({}), at::zeros({1237}, dtype), at::zeros({1237}, dtype)}};
      for (int step = 0; step < 20; ++step) {
        const at::Tensor gradient = at::randn({1237}).to(dtype);
        adam_step(group, ours.parameter, gradient, ours.moments);
        fused_by_torch(group, theirs, gradient);
      }
      // A few units in the last place of float32; bfloat16's may differ where those decide a rounding.
      const double tolerance = dtype == at::kFloat ? 1e-5 : 2e-2;
      EXPECT_LT(distance(ours.parameter, theirs.parameter), tolerance) << name;
      EXPECT_LT(distance(ours.moments.exp_avg, theirs.moments.exp_avg), tolerance) << name;
      EXPECT_LT(distance(ours.moments.exp_avg_sq, theirs.moments.exp_avg_sq), tolerance) << name;
      EXPECT_EQ(ours.moments.step.item<float>(), 20);
    }
  }
}

TEST(Adam, KeepsMomentsInBfloat16) {
  at::manual_seed(2);
  const ParameterGroup group = group_of("AdamW");
  const State narrow = start(at::kFloat, at::kBFloat16);
  const State wide{narrow.parameter.clone(), {at::zeros({}), at::zeros({1237}), at::zeros({1237})}};
  const at::Tensor gradient = at::randn({1237});
  adam_step(group, narrow.parameter, gradient, narrow.moments);
  adam_step(group, wide.parameter, gradient, wide.moments);
  EXPECT_TRUE(at::equal(narrow.parameter, wide.parameter));
  EXPECT_TRUE(at::equal(narrow.moments.exp_avg, wide.moments.exp_avg.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(narrow.moments.exp_avg_sq, wide.moments.exp_avg_sq.to(at::kBFloat16)));
}

TEST(Adam, DoesNotDependOnThreads) {
  at::manual_seed(3);
  const ParameterGroup group = group_of("AdamW");
  const at::Tensor parameter = at::randn({100001}), gradient = at::randn({100001});
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    results.push_back(parameter.clone());
    adam_step(group, results.back(), gradient, {at::zeros({}), at::zeros({100001}), at::zeros({100001})});
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

}  // namespace
}  // namespace milepost::train
