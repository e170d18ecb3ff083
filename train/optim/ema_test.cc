#include "train/optim/ema.h"

#include <gtest/gtest.h>

#include <cmath>

namespace milepost::train {
namespace {

Parameter parameter_of(const at::Tensor& values, bool trainable = true) {
  Parameter parameter;
  parameter.name = "weight";
  parameter.shape = values.sizes().vec();
  parameter.trainable = trainable;
  parameter.local = values;
  return parameter;
}

config::EmaWeights fixed(double decay) {
  config::EmaWeights options;
  options.enable = true;
  options.decay = decay;
  return options;
}

TEST(EmaDecay, FollowsStartBiasAndInterval) {
  config::EmaWeights options;
  options.start_step = 2;
  options.step_bias = 3;
  options.update_every_n_steps = 3;
  options.half_life_fraction = 0.05;
  EXPECT_FALSE(ema_decay(options, 1));
  EXPECT_EQ(ema_decay(options, 2), std::exp2(-20));
  EXPECT_FALSE(ema_decay(options, 3));
  EXPECT_FALSE(ema_decay(options, 4));
  EXPECT_EQ(ema_decay(options, 5), std::exp2(-1 / (0.05 * 2)));
  options.step_bias = 2;  // (0 + 2) / 3 updates are none, and count as one
  EXPECT_EQ(ema_decay(options, 2), std::exp2(-20));
  options.decay = 0.25;
  EXPECT_EQ(ema_decay(options, 8), 0.25);
  EXPECT_FALSE(ema_decay(options, 9));
}

TEST(Ema, MovesTowardsTheParameterAndLeavesItAlone) {
  Parameter weight = parameter_of(at::ones({3})), bias = parameter_of(at::ones({3}), /*trainable=*/false);
  Ema ema({&weight, &bias}, fixed(0.8));
  ASSERT_EQ(ema.averages().size(), 1U);
  weight.local.fill_(5);
  ema.update(0);
  EXPECT_TRUE(at::allclose(ema.averages()[0].values, at::full({3}, 1.8)));
  EXPECT_TRUE(at::equal(weight.local, at::full({3}, 5.0)));
  ema.reseed();
  EXPECT_TRUE(at::equal(ema.averages()[0].values, weight.local));
}

TEST(Ema, AgreesWithTorch) {
  at::manual_seed(3);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const double decay : {0.0, 0.3, 0.999}) {
      Parameter weight = parameter_of(at::randn({3, 5001}).to(dtype));
      config::EmaWeights options = fixed(decay);
      options.offload_to_cpu = true;  // nothing to offload here
      Ema ema({&weight}, options);
      at::Tensor expected = weight.local.clone();
      for (int64_t step = 1; step <= 5; ++step) {
        weight.local.copy_(at::randn({3, 5001}));
        ema.update(step);
        expected.lerp_(weight.local, 1 - decay);
      }
      const at::Tensor difference = (ema.averages()[0].values - expected).abs().max();
      EXPECT_LE(difference.item<double>(), dtype == at::kFloat ? 1e-6 : 2e-2) << decay;
    }
  }
}

TEST(Ema, EqualsForAnyNumberOfThreads) {
  at::manual_seed(4);
  const at::Tensor start = at::randn({70001}), end = at::randn({70001});
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    Parameter weight = parameter_of(start.clone());
    Ema ema({&weight}, fixed(0.9));
    weight.local.copy_(end);
    ema.update(1);
    results.push_back(ema.averages()[0].values);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

TEST(Ema, OfNothingIsNothing) {
  Parameter weight = parameter_of(at::empty({0, 4}));
  Ema ema({&weight}, fixed(0.9));
  ema.update(1);
  EXPECT_EQ(ema.averages()[0].values.numel(), 0);
}

}  // namespace
}  // namespace milepost::train
