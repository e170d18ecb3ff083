#include "train/ops/swiglu.h"

#include "train/ops/gradient_check.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

at::Tensor fused(const std::vector<at::Tensor>& in) { return swiglu(in[0], in[1]); }
at::Tensor unfused_form(const std::vector<at::Tensor>& in) { return unfused::swiglu(in[0], in[1]); }
at::Tensor fused_halves(const std::vector<at::Tensor>& in) {
  const int64_t width = in[0].size(-1) / 2;
  return swiglu(in[0].narrow(-1, 0, width), in[0].narrow(-1, width, width));
}

TEST(SwiGlu, AgreesWithUnfusedForm) {
  at::manual_seed(1);
  for (const int64_t width : {1, 15, 16, 100}) {
    const at::Tensor gate = at::randn({2, 33, width}) * 4, up = at::randn({2, 33, width});
    const at::Tensor dy = at::randn({2, 33, width});
    expect_near(run_both_ways(fused, {gate, up}, dy), run_both_ways(unfused_form, {gate, up}, dy), 1e-6);
    // The same roundings, so almost the same bits.
    const std::vector<at::Tensor> halves = {gate.to(at::kBFloat16), up.to(at::kBFloat16)};
    expect_near(run_both_ways(fused, halves, dy), run_both_ways(unfused_form, halves, dy), 3e-4);
  }
}

TEST(SwiGlu, KeepsExtremes) {
  const at::Tensor gate = at::tensor({-200.0F, -90.0F, 0.0F, 90.0F, 200.0F, NAN}).view({1, 6});
  const at::Tensor got = swiglu(gate, at::ones({1, 6})), expected = at::silu(gate);
  EXPECT_TRUE(at::allclose(got, expected, 1e-5, 1e-30, /*equal_nan=*/true)) << got;
}

TEST(SwiGlu, HasTheGradientOfFiniteDifferences) {
  at::manual_seed(2);
  expect_finite_differences(fused, {at::randn({9, 37}), at::randn({9, 37})}, at::randn({9, 37}), 1e-3);
}

TEST(SwiGlu, TakesHalvesOfOneProductAndNoRows) {
  at::manual_seed(3);
  expect_finite_differences(fused_halves, {at::randn({5, 46})}, at::randn({5, 23}), 1e-3);
  EXPECT_EQ(swiglu(at::empty({0, 4}), at::empty({0, 4})).numel(), 0);
}

TEST(SwiGlu, DoesNotDependOnThreads) {
  at::manual_seed(4);
  expect_thread_independence(fused, {at::randn({999, 129}), at::randn({999, 129})}, at::randn({999, 129}));
}

}  // namespace
}  // namespace milepost::train
