#include "train/ops/sequence_balance.h"

#include <gtest/gtest.h>

namespace milepost::train {
namespace {

constexpr int64_t B = 2, L = 7, E = 5, K = 2;
constexpr double kFactor = 0.25;

at::Tensor ids() { return at::rand({B, L, E}).argsort(int64_t{-1}).narrow(2, 0, K).contiguous(); }

// The formula, term by term, in double precision.
double formula(const at::Tensor& scores, const at::Tensor& expert_ids) {
  double total = 0;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t e = 0; e < E; ++e) {
      const double count = expert_ids[b].eq(e).sum().item<double>();
      double p = 0;
      for (int64_t t = 0; t < L; ++t) p += scores[b][t][e].item<double>() / scores[b][t].sum().item<double>();
      total += count * E / (K * L) * (p / L);
    }
  }
  return kFactor * total;
}

TEST(SequenceBalance, KeepsScoresAndGivesTheLoss) {
  at::manual_seed(1);
  const at::Tensor scores = at::rand({B, L, E}), expert_ids = ids();
  const SequenceBalance result = with_sequence_balance(scores, expert_ids, kFactor);
  EXPECT_TRUE(at::equal(result.scores_BLE, scores));
  EXPECT_NEAR(result.loss, formula(scores.to(at::kDouble), expert_ids), 1e-6);
  const at::Tensor even = at::arange(B * L * K, at::kLong).remainder(E).view({B, L, K});
  EXPECT_NEAR(with_sequence_balance(at::full({B, L, E}, 0.3), even, 1).loss, B, 1e-6);
}

TEST(SequenceBalance, AddsTheGradientOfFiniteDifferences) {
  at::manual_seed(2);
  at::Tensor scores = (at::rand({B, L, E}) + 0.1).requires_grad_();
  const at::Tensor expert_ids = ids(), dy = at::randn({B, L, E});
  with_sequence_balance(scores * 1, expert_ids, kFactor).scores_BLE.backward(dy);
  const at::Tensor added = (scores.grad() - dy).to(at::kDouble), at = scores.detach().to(at::kDouble);
  for (int64_t i = 0; i < scores.numel(); i += 3) {
    at::Tensor up = at.clone(), down = at.clone();
    up.view(-1)[i] += 1e-5;
    down.view(-1)[i] -= 1e-5;
    const double slope = (formula(up, expert_ids) - formula(down, expert_ids)) / 2e-5;
    EXPECT_NEAR(added.view(-1)[i].item<double>(), slope, 1e-6) << i;
  }
}

TEST(SequenceBalance, TakesNoTokens) {
  EXPECT_EQ(with_sequence_balance(at::empty({0, L, E}), at::empty({0, L, K}, at::kLong), 1).loss, 0);
}

}  // namespace
}  // namespace milepost::train
