#include "train/ops/experts.h"

#include "milepost/base/error.h"
#include "train/ops/gradient_check.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

using Experts = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&, bool);

// Tokens, dimensions, experts; expert 1 gets no token when there are more than two.
struct Problem {
  int64_t T, D, F, E, K;
  std::vector<at::Tensor> inputs() const {
    return {at::randn({T, D}), at::randn({E, F, D}) / 4, at::randn({E, D, F}) / 4, at::randn({E, F, D}) / 4,
            at::rand({T, K})};
  }
  at::Tensor ids() const {
    at::Tensor ids = at::rand({T, E}).argsort(int64_t{-1}).narrow(1, 0, K).contiguous();
    return E > 2 && K == 1 ? ids.masked_fill(ids.eq(1), 0) : ids;
  }
};
constexpr Problem kProblems[] = {{1, 2, 2, 1, 1}, {37, 8, 6, 4, 2}, {200, 24, 40, 3, 1}, {300, 64, 48, 8, 3}};

Operation with(Experts experts, const at::Tensor& ids, bool bf16) {
  return [=](const std::vector<at::Tensor>& in) {
    return experts(in[0], in[1], in[2], in[3], ids, in[4], bf16);
  };
}

TEST(RoutedExperts, AgreesWithUnfusedForm) {
  at::manual_seed(1);
  for (const Problem& p : kProblems) {
    const std::vector<at::Tensor> in = p.inputs();
    const at::Tensor ids = p.ids(), dy = at::randn({p.T, p.D});
    expect_near(run_both_ways(with(routed_experts, ids, false), in, dy),
                run_both_ways(with(unfused::routed_experts, ids, false), in, dy), 1e-5);
    expect_near(run_both_ways(with(routed_experts, ids, true), in, dy),
                run_both_ways(with(unfused::routed_experts, ids, true), in, dy), 2e-3);
    std::vector<at::Tensor> halves;
    for (const at::Tensor& tensor : in) halves.push_back(tensor.to(at::kBFloat16));
    halves.back() = in.back();
    expect_near(run_both_ways(with(routed_experts, ids, true), halves, dy),
                run_both_ways(with(unfused::routed_experts, ids, true), halves, dy), 6e-3);
  }
}

TEST(RoutedExperts, HasTheGradientOfFiniteDifferences) {
  at::manual_seed(2);
  const Problem p = kProblems[1];
  expect_finite_differences(with(routed_experts, p.ids(), false), p.inputs(), at::randn({p.T, p.D}), 2e-3,
                            1e-3);
}

TEST(RoutedExperts, GivesZeroGradientToAnExpertWithoutTokens) {
  at::manual_seed(3);
  const Problem p = kProblems[2];
  for (const bool bf16 : {false, true}) {
    const Result result =
        run_both_ways(with(routed_experts, p.ids(), bf16), p.inputs(), at::randn({p.T, p.D}));
    for (const size_t weight : {1, 2, 3}) {
      EXPECT_EQ(result.gradients[weight].select(0, 1).abs().max().item<float>(), 0);
      EXPECT_GT(result.gradients[weight].select(0, 0).abs().max().item<float>(), 0);
    }
  }
}

TEST(RoutedExperts, DoesNotDependOnThreads) {
  at::manual_seed(4);
  const Problem p = kProblems[3];
  for (const bool bf16 : {false, true}) {
    expect_thread_independence(with(routed_experts, p.ids(), bf16), p.inputs(), at::randn({p.T, p.D}));
  }
}

TEST(RoutedExperts, TakesOddDimensionsAndNoTokens) {
  at::manual_seed(5);
  const Problem odd{5, 7, 3, 2, 1};
  EXPECT_EQ(with(routed_experts, odd.ids(), true)(odd.inputs()).sizes(), (at::IntArrayRef{5, 7}));
  const Problem none{0, 8, 4, 2, 1};
  EXPECT_EQ(with(routed_experts, at::empty({0, 1}, at::kLong), true)(none.inputs()).numel(), 0);
}

TEST(RoutedExperts, CountsTokensOfExperts) {
  const at::Tensor ids = at::tensor({0, 3, 3, 1, 3, 0}, at::kLong).view({3, 2});
  EXPECT_TRUE(at::equal(count_experts(ids, 5), at::tensor({2, 1, 0, 3, 0}, at::kLong)));
  EXPECT_THROW(count_experts(ids, 3), ValueError);
  const Problem p{3, 8, 4, 3, 2};
  EXPECT_THROW(with(routed_experts, ids, true)(p.inputs()), ValueError);
}

}  // namespace
}  // namespace milepost::train
