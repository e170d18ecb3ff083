#include <algorithm>
#include <cmath>

#include "train/ops/kernels/rows.h"
#include "train/ops/tensor_rows.h"
#include "train/optim/optimizer.h"

namespace milepost::train {
namespace {

// Each block's sum is taken by one thread, in float32; blocks are added in order, in double precision.
constexpr int64_t kBlock = 4096;

double sum_of_squares(const at::Tensor& any_gradient) {
  if (!any_gradient.device().is_cpu()) return any_gradient.to(at::kDouble).square().sum().item<double>();
  const at::Tensor gradient = any_gradient.contiguous();
  const int64_t count = gradient.numel(), blocks = (count + kBlock - 1) / kBlock;
  std::vector<float> sums(static_cast<size_t>(blocks));
  with_element_type("clip_gradients", gradient.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    at::parallel_for(0, blocks, 8, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        sums[static_cast<size_t>(block)] = kernels::sum_of_squares(const_data<T>(gradient) + block * kBlock,
                                                                   std::min(kBlock, count - block * kBlock));
      }
    });
  });
  double total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace

double clip_gradients(const std::vector<Parameter*>& parameters, double max_norm, Group* shards) {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const Parameter* p : parameters) {
    if (p->local.grad().defined()) squares += sum_of_squares(p->local.grad());
  }
  if (shards != nullptr) squares = all_reduce(*shards, squares);
  const double norm = std::sqrt(squares);
  // In float32, as PyTorch computes it.
  const float factor = static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6F);
  // Gradients of which one is not finite stay as they are, so that it can be found.
  if (factor >= 1 || !std::isfinite(norm)) return norm;
  for (const Parameter* p : parameters) {
    if (p->local.grad().defined()) p->local.mutable_grad().mul_(factor);
  }
  return norm;
}

}  // namespace milepost::train
