#include "train/run/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/config/registry.h"
#include "train/models/bytes_in_use.h"
#include "train/models/loss.h"

namespace milepost::train {
namespace {

config::Trainer small_llama() {
  config::Trainer trainer = config::make("llama3", "llama3_debugmodel");
  trainer.model.architecture.dims = flavor::Llama3{.dim = 64,
                                                   .n_layers = 6,
                                                   .n_heads = 4,
                                                   .n_kv_heads = 2,
                                                   .head_dim = 16,
                                                   .hidden_dim = 192,
                                                   .vocab_size = 64,
                                                   .rope = {.max_seq_len = 128}};
  return trainer;
}

config::Trainer small_deepseek() {
  config::Trainer trainer = config::make("deepseek_v3", "deepseek_v3_debugmodel");
  trainer.model.architecture.dims = flavor::DeepSeekV3{.dim = 64,
                                                       .n_layers = 6,
                                                       .n_dense_layers = 1,
                                                       .n_heads = 4,
                                                       .vocab_size = 64,
                                                       .q_lora_rank = 24,
                                                       .kv_lora_rank = 32,
                                                       .qk_nope_head_dim = 16,
                                                       .qk_rope_head_dim = 8,
                                                       .v_head_dim = 16,
                                                       .hidden_dim = 160,
                                                       .moe_hidden_dim = 48,
                                                       .num_experts = 4,
                                                       .num_shared_experts = 2,
                                                       .top_k = 2,
                                                       .rope = {.max_seq_len = 128}};
  return trainer;
}

std::unique_ptr<Model> model_of(const config::Trainer& trainer) {
  auto model = build_model(trainer.model, {.seq_len = 128});
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  return model;
}

config::Trainer with(config::Trainer trainer, bool is_bf16, const config::ActivationCheckpoint& recompute) {
  trainer.training.local_batch_size = 8;
  trainer.training.seq_len = 128;
  if (is_bf16) {
    trainer.training.mixed_precision_param = "bfloat16";
  } else {
    trainer.training.mixed_precision_param = "float32";
  }
  trainer.activation_checkpoint = recompute;
  return trainer;
}

// The most that a forward and a backward pass take, gradients included.
int64_t measured_bytes(const config::Trainer& trainer) {
  const auto model = model_of(trainer);
  const int64_t rows = trainer.training.local_batch_size, length = trainer.training.seq_len;
  const at::Tensor ids = at::randint(64, {rows, length}, at::kLong);
  const Batch batch = {ids, ids, at::arange(length).expand({rows, length}).contiguous()};
  const bool is_bf16 = trainer.training.mixed_precision_param == "bfloat16";
  const auto execution =
      make_local_execution(is_bf16 ? at::kBFloat16 : at::kFloat, trainer.activation_checkpoint);
  const BytesInUse bytes;
  const auto hidden = model->hidden(batch, *execution, true);
  loss(trainer.loss, *model, *execution, hidden, batch, rows * length).backward();
  return bytes.peak();
}

TEST(EstimateMemory, IsNearWhatIsMeasured) {
  for (const config::Trainer& model : {small_llama(), small_deepseek()}) {
    for (const bool is_bf16 : {false, true}) {
      for (const config::ActivationCheckpoint& recompute :
           {config::ActivationCheckpoint(config::NoAc{}), config::ActivationCheckpoint(config::SelectiveAc{}),
            config::ActivationCheckpoint(config::FullAc{})}) {
        const config::Trainer trainer = with(model, is_bf16, recompute);
        const MemoryEstimate estimate = estimate_memory(trainer, *model_of(trainer));
        const auto expected = static_cast<double>(estimate.activations + estimate.gradients);
        EXPECT_NEAR(static_cast<double>(measured_bytes(trainer)) / expected, 1, 0.25)
            << trainer.model.architecture.text() << " " << is_bf16 << " " << recompute.index();
      }
    }
  }
}

TEST(EstimateMemory, DividesActivationsByTheDegrees) {
  config::Trainer trainer = with(small_llama(), false, config::SelectiveAc{});
  const auto model = model_of(trainer);
  const int64_t whole = estimate_memory(trainer, *model).activations;
  trainer.parallelism.context_parallel_degree = 2;
  const int64_t half_sequences = estimate_memory(trainer, *model).activations;
  // The output layer's gradient stays.
  EXPECT_NEAR(static_cast<double>(half_sequences), static_cast<double>(whole) / 2, 64 * 64 * 4);
  trainer.parallelism.tensor_parallel_degree = 2;
  EXPECT_EQ(estimate_memory(trainer, *model).activations, half_sequences / 2);
  trainer.parallelism.pipeline_parallel_degree = 3;
  EXPECT_LT(estimate_memory(trainer, *model).activations, half_sequences / 4);
}

}  // namespace
}  // namespace milepost::train
