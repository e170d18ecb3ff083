// attention_bench [ROUNDS] [THREADS]: attention forward and backward, GFLOP/s of causal FLOPs (two products
// forward, five backward) for ours, ATen's scaled_dot_product_attention (values padded to the keys' width),
// and the limit: matrix products of the same size that stay in the cache. Each figure is the fastest of
// ROUNDS interleaved rounds.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "train/ops/attention.h"
#include "train/ops/kernels/gemm.h"

namespace {

using namespace milepost::train;

struct Case {
  std::string name;
  int64_t batch, length, heads, key_heads, dim, rope_dim, value_dim;
  at::ScalarType dtype;

  double pairs() const {
    return static_cast<double>(batch * heads * length) * static_cast<double>(length + 1) / 2;
  }
  double forward_flops() const { return pairs() * 2 * static_cast<double>(dim + value_dim); }
  double backward_flops() const { return pairs() * 2 * static_cast<double>(3 * dim + 2 * value_dim); }
};

double seconds_of(const std::function<void()>& job) {
  const auto begin = std::chrono::steady_clock::now();
  job();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

at::Tensor values(at::IntArrayRef sizes, const Case& c) {
  return at::randn(sizes).to(c.dtype).requires_grad_();
}

using Attend = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Contender {
  std::string name;
  std::vector<at::Tensor> inputs;
  Attend attend;
  double forward = 1e9, both = 1e9;

  void run(const at::Tensor& d_out) {
    at::Tensor out;
    const double seconds = seconds_of([&] { out = attend(inputs); });
    const double back = seconds_of([&] { torch::autograd::grad({out}, inputs, {d_out}); });
    forward = std::min(forward, seconds);
    both = std::min(both, seconds + back);
  }
};

Contender ours(const Case& c) {
  const auto borders = document_borders(at::arange(c.length, at::kLong).unsqueeze(0).expand({c.batch, -1}));
  const at::Tensor q = values({c.batch, c.length, c.heads, c.dim}, c);
  if (c.rope_dim > 0) {
    const at::Tensor kv = values({c.batch, c.length, c.heads, c.dim - c.rope_dim + c.value_dim}, c);
    const at::Tensor k_rope = values({c.batch, c.length, c.rope_dim}, c);
    return {"ours", {q, kv, k_rope}, [borders](const auto& x) {
              return latent_attention(x[0], x[1], x[2], borders, 0.1);
            }};
  }
  const at::Tensor k = values({c.batch, c.length, c.key_heads, c.dim}, c);
  const at::Tensor v = values({c.batch, c.length, c.key_heads, c.value_dim}, c);
  return {"ours", {q, k, v}, [borders](const auto& x) { return attention(x[0], x[1], x[2], borders, 0.1); }};
}

Contender aten(const Case& c) {
  const at::Tensor q = values({c.batch, c.heads, c.length, c.dim}, c);
  const at::Tensor k = values({c.batch, c.key_heads, c.length, c.dim}, c);
  const at::Tensor v = values({c.batch, c.key_heads, c.length, c.value_dim}, c);
  return {"ATen", {q, k, v}, [c](const auto& x) {
            const at::Tensor padded = at::constant_pad_nd(x[2], {0, c.dim - c.value_dim});
            return at::scaled_dot_product_attention(x[0], x[1], padded, {}, 0, true, 0.1,
                                                    c.heads != c.key_heads)
                .narrow(3, 0, c.value_dim)
                .transpose(1, 2);
          }};
}

// GFLOP/s of [128, 192] x [192, 192] on each thread.
template <class T>
double limit() {
  constexpr int64_t kRows = 128, kColumns = 192, kDepth = 192, kTimes = 200;
  const int threads = at::get_num_threads();
  const double seconds = seconds_of([&] {
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      const std::vector<float> a(kRows * kDepth), b(kDepth * kColumns);
      std::vector<float> c(kRows * kColumns);
      for (int64_t i = 0; i < kTimes; ++i) {
        gemm_block<T>(kRows, kColumns, num_units<T>(kDepth), {a.data(), num_units<T>(kDepth), 1},
                      {b.data(), num_units<T>(kDepth) * kPanelColumns}, c.data(), kColumns, Sum::kReplace);
      }
    });
  });
  return 2.0 * kRows * kColumns * kDepth * kTimes * threads / seconds / 1e9;
}

void run(const Case& c, int64_t rounds) {
  std::vector<Contender> contenders = {ours(c), aten(c)};
  const at::Tensor d_out = at::randn({c.batch, c.length, c.heads, c.value_dim}).to(c.dtype);
  double best = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) contender.run(d_out);
    best = std::max(best, c.dtype == at::kFloat ? limit<float>() : limit<BFloat16>());
  }
  for (const Contender& x : contenders) {
    const double forward = c.forward_flops() / x.forward / 1e9;
    const double both = (c.forward_flops() + c.backward_flops()) / x.both / 1e9;
    const double backward = c.backward_flops() / std::max(1e-9, x.both - x.forward) / 1e9;
    fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} % |\n", c.name, x.name, forward,
               backward, both, best, 100 * both / best);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  if (argc > 2) at::set_num_threads(std::atoi(argv[2]));
  fmt::print(
      "| case | by | forward | backward | both, GFLOP/s | limit | both of limit "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::string type = dtype == at::kFloat ? "float32" : "bfloat16";
    run({"latent 192/128, 4x512, " + type, 4, 512, 16, 16, 192, 64, 128, dtype}, rounds);
    run({"latent 192/128, 1x2048, " + type, 1, 2048, 16, 16, 192, 64, 128, dtype}, rounds);
    run({"heads of 16, 4x512, " + type, 4, 512, 16, 16, 16, 0, 16, dtype}, rounds);
    run({"32 heads of 128 on 8, 1x2048, " + type, 1, 2048, 32, 8, 128, 0, 128, dtype}, rounds);
  }
  return 0;
}
