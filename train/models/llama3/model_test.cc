#include "train/models/llama3/model.h"

#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "train/models/loss.h"

namespace milepost::train {
namespace {

TEST(Llama3, LearnsABatch) {
  at::manual_seed(1);
  config::Trainer trainer = config::make("llama3", "llama3_debugmodel");
  const auto model = build_model(trainer.model, {.seq_len = 16});
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  const auto execution = make_local_execution(at::kFloat, config::NoAc{});
  const Batch batch = {at::randint(2048, {2, 16}, at::kLong), at::randint(2048, {2, 16}, at::kLong),
                       at::arange(16).expand({2, 16}).contiguous()};
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    const auto hidden = model->hidden(batch, *execution, true);
    const at::Tensor value = loss(config::ChunkedLoss{}, *model, *execution, hidden, batch, 32);
    value.backward();
    losses.push_back(value.item<double>());
    const at::NoGradGuard no_grad;
    for (Parameter* parameter : model->parameters()) {
      ASSERT_TRUE(parameter->local.grad().defined()) << parameter->name;
      parameter->local.sub_(parameter->local.grad(), 0.5);
      parameter->local.mutable_grad().reset();
    }
  }
  EXPECT_LT(losses.back(), losses.front() - 0.5);
}

}  // namespace
}  // namespace milepost::train
