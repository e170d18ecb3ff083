#include "train/ops/rope.h"

#include "milepost/base/error.h"
#include "train/ops/gradient_check.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

RopeTable table_of(int64_t dim) { return make_rope_table({.theta = 10000}, dim, 64); }
at::Tensor positions() { return at::arange(33, at::kLong).remainder(20).expand({2, 33}); }

at::Tensor rotated_last(const at::Tensor& x, const RopeTable& table) {
  const int64_t still = x.size(3) - table.dim;
  return at::cat(
      {x.narrow(3, 0, still), unfused::apply_rope(x.narrow(3, still, table.dim), table, positions())}, 3);
}

TEST(Rope, AgreesWithUnfusedForm) {
  at::manual_seed(1);
  for (const int64_t dim : {2, 8, 16, 24, 64}) {
    const RopeTable table = table_of(dim);
    const auto fused = [&](const std::vector<at::Tensor>& in) {
      return apply_rope(in[0], table, positions());
    };
    const auto plain = [&](const std::vector<at::Tensor>& in) {
      return unfused::apply_rope(in[0], table, positions());
    };
    for (const at::Tensor& x : {at::randn({2, 33, 3, dim}), at::randn({2, 33, dim})}) {
      const at::Tensor dy = at::randn(x.sizes());
      expect_near(run_both_ways(fused, {x}, dy), run_both_ways(plain, {x}, dy), 1e-6);
      const at::Tensor half = x.to(at::kBFloat16);
      expect_near(run_both_ways(fused, {half}, dy), run_both_ways(plain, {half}, dy), 1e-3);
      expect_thread_independence(fused, {x}, dy);
    }
  }
}

TEST(Rope, RotatesAViewOfWiderHeads) {
  at::manual_seed(2);
  const RopeTable table = table_of(8);
  const auto fused = [&](const std::vector<at::Tensor>& in) {
    return apply_rope(in[0].narrow(3, 5, 8), table, positions());
  };
  const auto plain = [&](const std::vector<at::Tensor>& in) {
    return unfused::apply_rope(in[0].narrow(3, 5, 8), table, positions());
  };
  const at::Tensor x = at::randn({2, 33, 3, 13}), dy = at::randn({2, 33, 3, 8});
  expect_near(run_both_ways(fused, {x}, dy), run_both_ways(plain, {x}, dy), 1e-6);
}

TEST(Rope, RotatesInPlace) {
  at::manual_seed(3);
  const RopeTable table = table_of(8);
  // The product stands for a linear; adding 1 afterwards, for an operation that owns its gradient.
  const auto fused = [&](const std::vector<at::Tensor>& in) {
    const at::Tensor x = in[0] * 2, out = rope_in_place(x, table, positions());
    EXPECT_EQ(out.data_ptr(), x.data_ptr());
    return out * 3;
  };
  const auto plain = [&](const std::vector<at::Tensor>& in) { return rotated_last(in[0] * 2, table) * 3; };
  const at::Tensor x = at::randn({2, 33, 3, 13}), dy = at::randn({2, 33, 3, 13});
  expect_near(run_both_ways(fused, {x}, dy), run_both_ways(plain, {x}, dy), 1e-6);
  // A gradient that others see too must not change under them.
  at::Tensor leaf = x.clone().requires_grad_();
  const at::Tensor out = rope_in_place(leaf * 1, table, positions()), kept = dy.clone();
  out.backward(kept);
  EXPECT_TRUE(at::equal(kept, dy));
}

TEST(Rope, HasTheGradientOfFiniteDifferences) {
  at::manual_seed(4);
  const RopeTable table = table_of(12);
  const auto fused = [&](const std::vector<at::Tensor>& in) { return apply_rope(in[0], table, positions()); };
  expect_finite_differences(fused, {at::randn({2, 33, 2, 12})}, at::randn({2, 33, 2, 12}), 1e-3);
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  const RopeTable table = table_of(4);
  for (const int64_t position : {-1, 64}) {
    try {
      apply_rope(at::zeros({1, 1, 1, 4}), table, at::full({1, 1}, position, at::kLong));
      ADD_FAILURE() << position;
    } catch (const ValueError& e) {
      EXPECT_EQ(std::string(e.what()),
                "position " + std::to_string(position) + " is outside the RoPE table of 64 positions");
    }
  }
}

}  // namespace
}  // namespace milepost::train
