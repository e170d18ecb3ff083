#include "train/ops/rms_norm.h"

#include "train/ops/gradient_check.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

at::Tensor fused(const std::vector<at::Tensor>& in) { return rms_norm(in[0], in[1], 1e-5); }
at::Tensor unfused_form(const std::vector<at::Tensor>& in) { return unfused::rms_norm(in[0], in[1], 1e-5); }

TEST(RmsNorm, AgreesWithUnfusedForm) {
  at::manual_seed(1);
  for (const int64_t dim : {2, 7, 16, 64, 100, 256}) {
    for (const int64_t rows : {1, 3, 200}) {
      const at::Tensor x = at::randn({rows, dim}), weight = at::rand({dim}) + 0.5,
                       dy = at::randn({rows, dim});
      expect_near(run_both_ways(fused, {x, weight}, dy), run_both_ways(unfused_form, {x, weight}, dy), 1e-5);
      const std::vector<at::Tensor> halves = {x.to(at::kBFloat16), weight.to(at::kBFloat16)};
      expect_near(run_both_ways(fused, halves, dy), run_both_ways(unfused_form, halves, dy), 1e-2);
    }
  }
}

TEST(RmsNorm, HasTheGradientOfFiniteDifferences) {
  at::manual_seed(2);
  expect_finite_differences(fused, {at::randn({9, 37}), at::randn({37})}, at::randn({9, 37}), 1e-3);
}

TEST(RmsNorm, DoesNotDependOnThreads) {
  at::manual_seed(3);
  expect_thread_independence(fused, {at::randn({3, 333, 129}), at::randn({129})}, at::randn({3, 333, 129}));
}

TEST(RmsNorm, TakesNoRowsAndStridedRows) {
  EXPECT_EQ(rms_norm(at::empty({0, 8}), at::ones({8}), 1e-5).numel(), 0);
  const at::Tensor wide = at::randn({5, 20}), part = wide.narrow(1, 3, 12), weight = at::randn({12});
  EXPECT_LT(relative_distance(rms_norm(part, weight, 1e-5), unfused::rms_norm(part, weight, 1e-5)), 1e-6);
}

}  // namespace
}  // namespace milepost::train
