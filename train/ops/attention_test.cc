#include "train/ops/attention.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "milepost/base/error.h"
#include "train/ops/unfused.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using Borders = std::shared_ptr<const DocumentBorders>;

// Documents of the given lengths, one after another, in each of `batch` rows.
Borders documents(int64_t batch, const std::vector<int64_t>& lengths) {
  std::vector<at::Tensor> parts;
  for (const int64_t length : lengths) parts.push_back(at::arange(length, at::kLong));
  return document_borders(at::cat(parts).unsqueeze(0).expand({batch, -1}));
}

struct Shape {
  int64_t batch, length, heads, key_heads, dim, value_dim;
};

at::Tensor values(at::IntArrayRef sizes, at::ScalarType dtype, double spread = 1) {
  return at::randn(sizes).mul(spread).to(dtype).requires_grad_();
}

struct Outcome {
  at::Tensor out;
  std::vector<at::Tensor> gradients;
};
template <class Function>
Outcome run(const Function& function, const std::vector<at::Tensor>& inputs, const at::Tensor& weight) {
  Outcome outcome;
  outcome.out = function(inputs);
  const at::Tensor loss = (outcome.out.to(at::kFloat) * weight.to(at::kFloat)).sum();
  outcome.gradients = torch::autograd::grad({loss}, inputs);
  outcome.out = outcome.out.detach();
  return outcome;
}

// Largest difference over the largest value.
double difference(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor wide = want.to(at::kDouble);
  const double largest = wide.abs().max().item<double>();
  return (got.to(at::kDouble) - wide).abs().max().item<double>() / (largest > 0 ? largest : 1);
}

void expect_close(const Outcome& got, const Outcome& want, double tolerance) {
  EXPECT_EQ(got.out.sizes(), want.out.sizes());
  EXPECT_LT(difference(got.out, want.out), tolerance);
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    EXPECT_EQ(got.gradients[i].sizes(), want.gradients[i].sizes());
    EXPECT_EQ(got.gradients[i].scalar_type(), want.gradients[i].scalar_type());
    EXPECT_LT(difference(got.gradients[i], want.gradients[i]), tolerance) << "input " << i;
  }
}

constexpr double kScale = 0.15;

void compare_attention(const Shape& s, const std::vector<int64_t>& lengths, at::ScalarType dtype,
                       double tolerance) {
  SCOPED_TRACE("L " + std::to_string(s.length) + " D " + std::to_string(s.dim) + " V " +
               std::to_string(s.value_dim) + " documents " + std::to_string(lengths.size()));
  const Borders borders = documents(s.batch, lengths);
  const std::vector<at::Tensor> x = {values({s.batch, s.length, s.heads, s.dim}, dtype),
                                     values({s.batch, s.length, s.key_heads, s.dim}, dtype),
                                     values({s.batch, s.length, s.key_heads, s.value_dim}, dtype)};
  const at::Tensor weight = at::randn({s.batch, s.length, s.heads, s.value_dim}).to(dtype);
  const auto ours = [&](const auto& in) { return attention(in[0], in[1], in[2], borders, kScale); };
  const auto theirs = [&](const auto& in) {
    return unfused::attention(in[0], in[1], in[2], borders, kScale);
  };
  expect_close(run(ours, x, weight), run(theirs, x, weight), tolerance);
}

void compare_latent(const Shape& s, int64_t rope_dim, const std::vector<int64_t>& lengths,
                    at::ScalarType dtype, double tolerance) {
  SCOPED_TRACE("latent, L " + std::to_string(s.length) + " R " + std::to_string(rope_dim));
  const Borders borders = documents(s.batch, lengths);
  const int64_t width = s.dim - rope_dim + s.value_dim;
  const std::vector<at::Tensor> x = {values({s.batch, s.length, s.heads, s.dim}, dtype),
                                     values({s.batch, s.length, s.heads, width}, dtype),
                                     values({s.batch, s.length, rope_dim}, dtype)};
  const at::Tensor weight = at::randn({s.batch, s.length, s.heads, s.value_dim}).to(dtype);
  const auto ours = [&](const auto& in) { return latent_attention(in[0], in[1], in[2], borders, kScale); };
  const auto theirs = [&](const auto& in) {
    return unfused::latent_attention(in[0], in[1], in[2], borders, kScale);
  };
  expect_close(run(ours, x, weight), run(theirs, x, weight), tolerance);
}

TEST(Attention, EqualsUnfusedForAnyLength) {
  at::manual_seed(1);
  for (const int64_t length : {1, 2, 7, 16, 65, 129, 513}) {
    compare_attention({2, length, 2, 2, 24, 24}, {length}, at::kFloat, 2e-5);
  }
}

TEST(Attention, EqualsUnfusedForUnequalHeadSizes) {
  at::manual_seed(2);
  compare_attention({1, 140, 2, 2, 192, 128}, {140}, at::kFloat, 2e-5);
  compare_attention({1, 140, 2, 2, 5, 3}, {140}, at::kFloat, 2e-5);
  compare_attention({1, 140, 2, 2, 16, 16}, {140}, at::kFloat, 2e-5);
  compare_attention({1, 140, 2, 2, 17, 40}, {140}, at::kFloat, 2e-5);
}

TEST(Attention, SharesKeyHeads) {
  at::manual_seed(3);
  compare_attention({2, 150, 6, 2, 32, 32}, {150}, at::kFloat, 2e-5);
  compare_attention({2, 150, 4, 1, 32, 16}, {100, 50}, at::kFloat, 2e-5);
}

TEST(Attention, SeesItsOwnDocumentOnly) {
  at::manual_seed(4);
  compare_attention({2, 65, 2, 2, 16, 16}, std::vector<int64_t>(65, 1), at::kFloat, 2e-5);
  compare_attention({2, 600, 2, 2, 16, 16}, {1, 2, 3, 9, 15, 16, 17, 31, 129, 300, 77}, at::kFloat, 2e-5);
  compare_attention({1, 1100, 1, 1, 16, 16}, {513, 255, 1, 331}, at::kFloat, 2e-5);
  std::vector<int64_t> lengths;
  for (int64_t total = 0, next = 1; total < 700; next = next % 23 + 1) {
    lengths.push_back(std::min(next, 700 - total));
    total += lengths.back();
  }
  compare_attention({1, 700, 2, 1, 16, 32}, lengths, at::kFloat, 2e-5);
}

// Tolerances: the unfused form computes in float32 from the same rounded inputs; ours also rounds
// probabilities and their gradients to 8 bits (2^-9 each), the results both do.
TEST(Attention, EqualsUnfusedInBFloat16) {
  at::manual_seed(5);
  for (const int64_t length : {1, 7, 65, 513}) {
    compare_attention({2, length, 2, 2, 24, 40}, {length}, at::kBFloat16, 0.02);
  }
  compare_attention({1, 130, 4, 2, 33, 17}, {40, 1, 1, 51, 37}, at::kBFloat16, 0.02);
  compare_attention({1, 77, 2, 2, 16, 16}, std::vector<int64_t>(77, 1), at::kBFloat16, 0.02);
}

TEST(LatentAttention, EqualsUnfused) {
  at::manual_seed(6);
  for (const int64_t length : {1, 7, 65, 513}) {
    compare_latent({2, length, 3, 3, 48, 32}, 16, {length}, at::kFloat, 2e-5);
  }
  compare_latent({2, 300, 2, 2, 192, 128}, 64, {100, 1, 199}, at::kFloat, 2e-5);
  compare_latent({1, 90, 2, 2, 13, 7}, 4, {41, 49}, at::kFloat, 2e-5);
  compare_latent({2, 300, 2, 2, 192, 128}, 64, {100, 1, 199}, at::kBFloat16, 0.02);
  compare_latent({1, 90, 2, 2, 13, 7}, 4, {41, 49}, at::kBFloat16, 0.02);
}

TEST(Attention, TakesViews) {
  at::manual_seed(7);
  const Borders borders = documents(2, {70});
  const at::Tensor wide = values({2, 70, 3, 60}, at::kFloat), k = values({2, 3, 70, 20}, at::kFloat);
  const at::Tensor v = values({2, 70, 3, 2 * 24}, at::kFloat);
  const at::Tensor weight = at::randn({2, 70, 3, 24});
  const auto views = [&](const auto& attend) {
    return [&](const std::vector<at::Tensor>& in) {
      // A part of wider heads, heads before positions, and a last dimension that is not dense.
      const at::Tensor dense_v = in[2].unflatten(3, {24, 2}).select(4, 0);
      return attend(in[0].narrow(3, 40, 20), in[1].transpose(1, 2), dense_v, borders, kScale);
    };
  };
  expect_close(run(views(attention), {wide, k, v}, weight),
               run(views(unfused::attention), {wide, k, v}, weight), 2e-5);
}

TEST(Attention, GradientsAreFiniteDifferences) {
  at::manual_seed(8);
  const Borders borders = documents(1, {5, 4});
  const std::vector<at::Tensor> x = {values({1, 9, 2, 8}, at::kFloat), values({1, 9, 2, 10}, at::kFloat),
                                     values({1, 9, 4}, at::kFloat)};
  const at::Tensor weight = at::randn({1, 9, 2, 6});
  const auto loss = [&](const std::vector<at::Tensor>& in) {
    return (latent_attention(in[0], in[1], in[2], borders, 0.3).to(at::kDouble) * weight).sum();
  };
  const auto gradients = torch::autograd::grad({loss(x)}, x);
  for (size_t i = 0; i < x.size(); ++i) {
    for (int64_t at = 0; at < x[i].numel(); at += 3) {
      constexpr float kStep = 1e-2F;
      std::vector<at::Tensor> up, down;
      for (const at::Tensor& input : x) {
        up.push_back(input.detach().clone());
        down.push_back(input.detach().clone());
      }
      up[i].data_ptr<float>()[at] += kStep;
      down[i].data_ptr<float>()[at] -= kStep;
      const double slope = (loss(up) - loss(down)).item<double>() / (2 * kStep);
      EXPECT_NEAR(gradients[i].data_ptr<float>()[at], slope, 2e-3) << "input " << i << " element " << at;
    }
  }
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(9);
  const Borders borders = documents(2, {300, 250});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> x = {values({2, 550, 3, 24}, dtype), values({2, 550, 3, 32}, dtype),
                                       values({2, 550, 8}, dtype)};
    const at::Tensor weight = at::randn({2, 550, 3, 16});
    const auto ours = [&](const auto& in) { return latent_attention(in[0], in[1], in[2], borders, kScale); };
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const Outcome one = run(ours, x, weight);
    at::set_num_threads(2);
    const Outcome two = run(ours, x, weight);
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(one.out, two.out));
    for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(at::equal(one.gradients[i], two.gradients[i])) << i;
  }
}

TEST(Attention, LargeScoresStayFinite) {
  at::manual_seed(10);
  const Borders borders = documents(1, {300});
  const std::vector<at::Tensor> x = {values({1, 300, 1, 16}, at::kFloat, 30),
                                     values({1, 300, 1, 16}, at::kFloat, 30),
                                     values({1, 300, 1, 16}, at::kFloat)};
  const at::Tensor weight = at::randn({1, 300, 1, 16});
  const auto ours = [&](const auto& in) { return attention(in[0], in[1], in[2], borders, 1.0); };
  const auto theirs = [&](const auto& in) { return unfused::attention(in[0], in[1], in[2], borders, 1.0); };
  expect_close(run(ours, x, weight), run(theirs, x, weight), 1e-3);
}

// [L, L] float32 scores would take 268 MB.
TEST(Attention, NeedsMemoryForRowsOnly) {
  const int64_t length = 8192;
  const Borders borders = documents(1, {length});
  const std::vector<at::Tensor> x = {values({1, length, 1, 16}, at::kFloat),
                                     values({1, length, 1, 16}, at::kFloat),
                                     values({1, length, 1, 16}, at::kFloat)};
  rlimit former{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &former), 0);
  std::ifstream statm("/proc/self/statm");
  int64_t pages[6] = {};
  for (int64_t& count : pages) statm >> count;
  rlimit limit = former;
  limit.rlim_cur = static_cast<rlim_t>(pages[5] * sysconf(_SC_PAGESIZE) + (int64_t{100} << 20));
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  EXPECT_NO_THROW(torch::autograd::grad({attention(x[0], x[1], x[2], borders, kScale).sum()}, x));
  setrlimit(RLIMIT_DATA, &former);
}

TEST(Attention, NotANumberSpreads) {
  const Borders borders = documents(1, {40});
  at::Tensor q = at::randn({1, 40, 1, 16});
  q.data_ptr<float>()[20 * 16] = NAN;
  const at::Tensor out = attention(q, at::randn({1, 40, 1, 16}), at::randn({1, 40, 1, 16}), borders, kScale);
  EXPECT_TRUE(out.select(1, 20).isnan().all().item<bool>());
  EXPECT_FALSE(out.select(1, 19).isnan().any().item<bool>());
}

TEST(Attention, RefusesWrongShapes) {
  const Borders borders = documents(1, {10});
  const at::Tensor x = at::randn({1, 10, 3, 8}), two = at::randn({1, 10, 2, 8}),
                   longer = at::randn({1, 11, 3, 8});
  EXPECT_THROW(attention(x, two, two, borders, 1), ValueError);
  EXPECT_THROW(attention(longer, longer, longer, borders, 1), ValueError);
  EXPECT_THROW(attention(x, longer, longer, borders, 1), ValueError);
  EXPECT_THROW(attention(x, x.to(at::kBFloat16), x, borders, 1), ValueError);
  EXPECT_THROW(attention(x, x.narrow(3, 0, 4), x, borders, 1), ValueError);
  EXPECT_THROW(latent_attention(x, x, at::randn({1, 10, 9}), borders, 1), ValueError);
}

}  // namespace
}  // namespace milepost::train
