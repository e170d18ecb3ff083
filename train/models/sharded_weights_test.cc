#include "train/models/sharded_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "milepost/config/registry.h"
#include "train/models/loss.h"
#include "train/models/sharding.h"
#include "train/parallel/rank_threads.h"

namespace milepost::train {
namespace {

// Sizes that no number of ranks above 1 divides, or few.
config::Model small_deepseek() {
  config::Model model = config::make("deepseek_v3", "deepseek_v3_debugmodel").model;
  auto& dims = std::get<flavor::DeepSeekV3>(model.architecture.dims);
  dims.dim = 24;
  dims.n_layers = 3;
  dims.n_heads = 3;
  dims.vocab_size = 101;
  dims.kv_lora_rank = 10;
  dims.qk_nope_head_dim = 6;
  dims.qk_rope_head_dim = 4;
  dims.v_head_dim = 7;
  dims.hidden_dim = 31;
  dims.moe_hidden_dim = 10;
  dims.num_experts = 5;
  dims.num_mtp_layers = 1;
  model.options.fp32_experts = true;
  return model;
}

config::Model small_llama() {
  config::Model model = config::make("llama3", "llama3_debugmodel").model;
  auto& dims = std::get<flavor::Llama3>(model.architecture.dims);
  dims.dim = 24;
  dims.n_layers = 2;
  dims.n_heads = 6;
  dims.n_kv_heads = 2;
  dims.head_dim = 4;
  dims.hidden_dim = 31;
  dims.vocab_size = 101;
  dims.tied_embeddings = true;
  return model;
}

constexpr int64_t kSequences = 24, kLength = 16;

Batch batch_of(int64_t first, int64_t count) {
  const at::Tensor tokens =
      (at::arange(kSequences * kLength, at::kLong) * 7919 % 101).view({kSequences, kLength});
  Batch batch;
  batch.tokens_BL = tokens.narrow(0, first, count);
  batch.labels_BL = ((tokens * 31 + 5) % 101).narrow(0, first, count);
  batch.positions_BL = (at::arange(kLength, at::kLong) % 11).expand({count, kLength}).contiguous();
  return batch;
}

config::Loss loss_of(const config::Model& model) {
  if (model.architecture.model() == "deepseek_v3") return config::MtpLoss{};
  return config::CrossEntropyLoss{};
}

// Two micro-batches, so that gradients accumulate. Returns this rank's part of the loss.
double forward_backward(const config::Model& config, Model& model, Execution& execution, int64_t rank,
                        int64_t num_ranks) {
  double sum = 0;
  const int64_t rows = kSequences / num_ranks / 2;
  for (int64_t micro = 0; micro < 2; ++micro) {
    const Batch batch = batch_of((rank * 2 + micro) * rows, rows);
    const auto hidden = model.hidden(batch, execution, true);
    const at::Tensor value = loss(loss_of(config), model, execution, hidden, batch, kSequences * kLength);
    value.backward();
    execution.finish_backward();
    sum += value.item<double>();
  }
  return sum;
}

// The default generator is one for all threads.
std::mutex generator_mutex;

std::unique_ptr<Model> initialized(const config::Model& config, const DeviceMesh* mesh) {
  auto model = build_model(config, {.seq_len = kLength});
  if (mesh != nullptr) shard_parameters(*model, *mesh);
  const std::lock_guard lock(generator_mutex);
  at::manual_seed(5);
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  return model;
}

at::Tensor own_part(const Parameter& parameter, at::Tensor whole) {
  const Box box = local_box(parameter);
  for (size_t dim = 0; dim < box.offsets.size(); ++dim) {
    whole = whole.narrow(static_cast<int64_t>(dim), box.offsets[dim], box.sizes[dim]);
  }
  return whole;
}

struct Case {
  int64_t replicate, shard;
  bool reshard, recompute, is_llama;
};

class ShardedWeightsTest : public ::testing::TestWithParam<Case> {};

TEST_P(ShardedWeightsTest, GiveTheGradientsOfOneProcess) {
  const Case& test = GetParam();
  const config::Model config = test.is_llama ? small_llama() : small_deepseek();
  const config::ActivationCheckpoint recompute =
      test.recompute ? config::ActivationCheckpoint(config::FullAc{}) : config::NoAc{};
  const auto whole = initialized(config, nullptr);
  const auto alone = make_local_execution(at::kFloat, config::NoAc{});
  const double want = forward_backward(config, *whole, *alone, 0, 1);

  Degrees degrees;
  degrees.dp_replicate = test.replicate;
  degrees.dp_shard = test.shard;
  run_ranks(degrees, [&](ProcessGroups& groups) {
    const auto model = initialized(config, &groups.mesh());
    const auto execution = make_execution(
        std::make_unique<ShardedWeights>(
            groups, *model,
            ShardedWeights::Options{at::kFloat, at::kFloat, /*reshard_after_forward=*/test.reshard}),
        recompute);
    const double part = forward_backward(config, *model, *execution, groups.group("batch").index(),
                                         groups.group("batch").size());
    EXPECT_NEAR(all_reduce(groups.group("batch"), part), want, 2e-6);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      const Parameter& parameter = *model->parameters()[i];
      const Parameter& reference = *whole->parameters()[i];
      EXPECT_TRUE(at::equal(parameter.local, own_part(parameter, reference.local)) || !parameter.trainable)
          << parameter.name;
      if (!parameter.trainable) continue;
      const at::Tensor own = own_part(parameter, reference.local.grad());
      EXPECT_TRUE(at::allclose(parameter.local.grad(), own, 1e-4, 1e-7))
          << parameter.name << " " << (parameter.local.grad() - own).abs().max();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShardedWeightsTest,
                         ::testing::Values(Case{1, 1, true, false, false}, Case{1, 2, true, false, false},
                                           Case{1, 2, false, false, false}, Case{1, 3, true, true, false},
                                           Case{2, 2, true, false, false}, Case{1, 6, true, false, false},
                                           Case{1, 2, true, false, true}, Case{1, 3, true, true, true}));

}  // namespace
}  // namespace milepost::train
