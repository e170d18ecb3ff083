#include "train/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

Parameter parameter(const std::string& name, const at::Tensor& value, bool trainable = true) {
  Parameter p;
  p.name = name;
  p.shape = value.sizes().vec();
  p.trainable = trainable;
  p.local = value.clone().requires_grad_(trainable);
  return p;
}

config::Optimizer options_of(const std::vector<std::string>& patterns) {
  config::Optimizer options;
  for (const std::string& pattern : patterns) {
    config::ParamGroup group;
    group.pattern = pattern;
    options.param_groups.push_back(group);
  }
  return options;
}

std::string error_of(const std::vector<Parameter*>& parameters, const config::Optimizer& options) {
  try {
    Optimizer optimizer(parameters, options);
    return "none";
  } catch (const ValueError& e) {
    return e.what();
  }
}

TEST(Optimizer, PutsParametersInTheFirstGroupThatMatches) {
  Parameter norm = parameter("layers.0.norm.weight", at::ones({2})),
            wq = parameter("layers.0.wq.weight", at::ones({2}));
  Parameter bias = parameter("layers.0.norm.bias", at::ones({2}), /*trainable=*/false);
  Optimizer optimizer({&norm, &wq, &bias}, options_of({R"(norm\.)", ".*"}));
  ASSERT_EQ(optimizer.groups().size(), 2U);
  EXPECT_EQ(optimizer.groups()[0].parameters, (std::vector<Parameter*>{&norm}));
  EXPECT_EQ(optimizer.groups()[1].parameters, (std::vector<Parameter*>{&wq}));
}

TEST(Optimizer, RefusesPatternsThatDoNotFit) {
  Parameter p = parameter("wq.weight", at::ones({2}));
  EXPECT_EQ(error_of({&p}, options_of({".*", "wq"})),
            "Optimizer param_groups pattern 'wq' matched no parameters");
  EXPECT_EQ(error_of({&p}, options_of({"("})),
            "Optimizer param_groups pattern '(' is not a regular expression");
  EXPECT_EQ(error_of({&p}, options_of({})),
            "No pattern of the optimizer's param_groups takes parameter wq.weight");
  config::Optimizer unknown = options_of({".*"});
  unknown.param_groups[0].optimizer_name = "Lion";
  EXPECT_EQ(error_of({&p}, unknown), "Optimizer Lion not added.");
}

TEST(Optimizer, StepsOnlyWhereThereIsAGradient) {
  Parameter moved = parameter("a", at::ones({3})), still = parameter("b", at::ones({3}));
  Optimizer optimizer({&moved, &still}, options_of({".*"}));
  moved.local.mutable_grad() = at::full({3}, 2.0F);
  optimizer.step();
  // The first step moves by lr (up to eps), after decay.
  EXPECT_NEAR(moved.local[0].item<double>(), 1 - 8e-4 * 0.1 - 8e-4, 1e-7);
  EXPECT_TRUE(at::equal(still.local.detach(), at::ones({3})));
  EXPECT_EQ(optimizer.groups()[0].moments[0].step.item<float>(), 1);
  optimizer.zero_grad();
  EXPECT_FALSE(moved.local.grad().defined());
}

TEST(Optimizer, KeepsMomentsAsAsked) {
  Parameter p = parameter("a", at::ones({3}));
  config::Optimizer options = options_of({".*"});
  options.implementation = "fused_opt_states_bf16";
  Optimizer optimizer({&p}, options);
  EXPECT_FALSE(optimizer.groups()[0].moments[0].exp_avg.defined());
  optimizer.materialize();
  EXPECT_EQ(optimizer.groups()[0].moments[0].exp_avg.scalar_type(), at::kBFloat16);
}

TEST(ClipGradients, ScalesToTheNorm) {
  Parameter a = parameter("a", at::ones({10000})), b = parameter("b", at::ones({3}));
  at::manual_seed(1);
  a.local.mutable_grad() = at::randn({10000});
  const at::Tensor before = a.local.grad().clone();
  const double norm = before.to(at::kDouble).norm().item<double>();
  EXPECT_NEAR(clip_gradients({&a, &b}, 1000), norm, 1e-5 * norm);
  EXPECT_TRUE(at::equal(a.local.grad(), before));
  EXPECT_NEAR(clip_gradients({&a, &b}, 2), norm, 1e-5 * norm);
  EXPECT_NEAR(a.local.grad().norm().item<double>(), 2, 1e-5);
}

TEST(ClipGradients, GivesNormsThatAreNotFinite) {
  Parameter p = parameter("a", at::ones({2}));
  p.local.mutable_grad() = at::tensor({1.0F, NAN});
  EXPECT_TRUE(std::isnan(clip_gradients({&p}, 1)));
}

TEST(ClipGradients, DoesNotDependOnThreads) {
  at::manual_seed(2);
  Parameter p = parameter("a", at::ones({300001}));
  p.local.mutable_grad() = at::randn({300001});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = clip_gradients({&p}, 1e9);
  at::set_num_threads(2);
  EXPECT_EQ(clip_gradients({&p}, 1e9), alone);
  at::set_num_threads(threads);
}

TEST(ExpertBiases, MoveTowardsEvenLoad) {
  Parameter bias = parameter("expert_bias_E", at::zeros({4}), false);
  Parameter tokens = parameter("tokens_per_expert_E", at::tensor({10.0F, 2.0F, 4.0F, 0.0F}), false);
  ExpertLoad load{"layers.1", &bias, &tokens};
  update_expert_biases({&load}, 1e-3);
  // Signs -1, 1, 0, 1 less their mean, a quarter.
  EXPECT_TRUE(at::allclose(bias.local, at::tensor({-1.25e-3F, 0.75e-3F, -0.25e-3F, 0.75e-3F})));
  EXPECT_TRUE(at::equal(tokens.local, at::zeros({4})));
}

TEST(ExpertBiases, StayWhereTheyAreNotBalanced) {
  Parameter bias = parameter("expert_bias_E", at::zeros({2}), false);
  Parameter tokens = parameter("tokens_per_expert_E", at::tensor({1.0F, 2.0F}), false);
  ExpertLoad load{"mtp_layers.0", &bias, &tokens};
  load.is_balanced = false;
  update_expert_biases({&load}, 1e-3);
  EXPECT_TRUE(at::equal(bias.local, at::zeros({2})));
  EXPECT_TRUE(at::equal(tokens.local, at::tensor({1.0F, 2.0F})));
}

}  // namespace
}  // namespace milepost::train
