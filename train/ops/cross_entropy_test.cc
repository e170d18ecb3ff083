#include "train/ops/cross_entropy.h"

#include "milepost/base/error.h"
#include "train/ops/gradient_check.h"
#include "train/ops/unfused.h"

namespace milepost::train {
namespace {

at::Tensor labels_of(int64_t rows, int64_t vocab_size) {
  at::Tensor labels = at::arange(rows, at::kLong) * 7 % vocab_size;
  for (int64_t row = 2; row < rows; row += 5) labels[row] = -100;
  return labels;
}

// Times one, so that the leaf itself is not overwritten.
Operation with(at::Tensor (*loss)(const at::Tensor&, const at::Tensor&), const at::Tensor& labels) {
  return [=](const std::vector<at::Tensor>& in) { return loss(in[0] * 1, labels); };
}

TEST(CrossEntropy, AgreesWithUnfusedForm) {
  at::manual_seed(1);
  for (const int64_t vocab_size : {1, 15, 16, 100, 2048}) {
    const at::Tensor labels = labels_of(33, vocab_size), logits = at::randn({33, vocab_size}) * 5;
    const at::Tensor scale = at::full({}, 0.0123);
    expect_near(run_both_ways(with(cross_entropy_sum, labels), {logits}, scale),
                run_both_ways(with(unfused::cross_entropy_sum, labels), {logits}, scale), 2e-6);
    const at::Tensor half = logits.to(at::kBFloat16);
    expect_near(run_both_ways(with(cross_entropy_sum, labels), {half}, scale),
                run_both_ways(with(unfused::cross_entropy_sum, labels), {half}, scale), 1e-4);
    expect_thread_independence(with(cross_entropy_sum, labels), {logits}, scale);
  }
}

TEST(CrossEntropy, HasTheGradientOfFiniteDifferences) {
  at::manual_seed(2);
  expect_finite_differences(with(cross_entropy_sum, labels_of(9, 37)), {at::randn({9, 37})}, at::ones({}),
                            1e-3);
}

TEST(CrossEntropy, KeepsLogitsWithoutBackwardPass) {
  const at::Tensor logits = at::randn({3, 20}), before = logits.clone();
  const at::NoGradGuard no_grad;
  cross_entropy_sum(logits, labels_of(3, 20));
  EXPECT_TRUE(at::equal(logits, before));
}

TEST(CrossEntropy, OfNoRowsOrIgnoredOnesIsZero) {
  EXPECT_EQ(cross_entropy_sum(at::empty({0, 5}), at::empty({0}, at::kLong)).item<float>(), 0);
  at::Tensor logits = at::randn({2, 5}).requires_grad_();
  const at::Tensor loss = cross_entropy_sum(logits * 1, at::full({2}, -100, at::kLong));
  loss.backward();
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_TRUE(at::equal(logits.grad(), at::zeros({2, 5})));
}

TEST(CrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  for (const int64_t label : {-1, 5}) {
    EXPECT_THROW(cross_entropy_sum(at::randn({1, 5}), at::full({1}, label, at::kLong)), ValueError);
  }
}

}  // namespace
}  // namespace milepost::train
