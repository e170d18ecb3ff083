// What every execution must give: the same losses and gradients, and counts that count once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "train/models/bytes_in_use.h"
#include "train/models/loss.h"

namespace milepost::train {
namespace {

flavor::DeepSeekV3 small_deepseek() {
  return {.dim = 32,
          .n_layers = 2,
          .n_dense_layers = 1,
          .n_heads = 2,
          .vocab_size = 50,
          .q_lora_rank = 12,
          .kv_lora_rank = 16,
          .qk_nope_head_dim = 8,
          .qk_rope_head_dim = 4,
          .v_head_dim = 8,
          .hidden_dim = 40,
          .moe_hidden_dim = 16,
          .num_experts = 4,
          .num_shared_experts = 1,
          .top_k = 2,
          .num_mtp_layers = 1,
          .rope = {.max_seq_len = 64}};
}

struct Outcome {
  double loss = 0;
  std::vector<at::Tensor> gradients, counts;
  std::vector<double> aux_losses;
};

Outcome run(at::ScalarType dtype, const config::ActivationCheckpoint& recompute) {
  config::Model config;
  config.architecture.dims = small_deepseek();
  config.options.aux_loss_coeff = 0.01;
  at::manual_seed(3);
  const auto model = build_model(config, {.seq_len = 16, .global_batch_size = 2});
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  const Batch batch = {at::randint(50, {2, 16}, at::kLong), at::randint(50, {2, 16}, at::kLong),
                       at::arange(16).remainder(11).expand({2, 16}).contiguous()};
  const auto execution = make_local_execution(dtype, recompute);
  const auto hidden = model->hidden(batch, *execution, true);
  const at::Tensor value = loss(config::MtpLoss{}, *model, *execution, hidden, batch, 32);
  value.backward();
  Outcome outcome;
  outcome.loss = value.item<double>();
  for (Parameter* parameter : model->parameters()) {
    EXPECT_FALSE(parameter->compute.defined()) << parameter->name;
    if (!parameter->trainable) continue;
    EXPECT_TRUE(parameter->local.grad().defined()) << parameter->name;
    EXPECT_EQ(parameter->local.grad().scalar_type(), at::kFloat) << parameter->name;
    outcome.gradients.push_back(parameter->local.grad());
  }
  for (const ExpertLoad* load : model->expert_loads()) {
    outcome.counts.push_back(load->tokens_E->local);
    outcome.aux_losses.push_back(load->aux_loss);
  }
  return outcome;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.aux_losses, b.aux_losses);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << i;
  ASSERT_EQ(a.counts.size(), b.counts.size());
  for (size_t i = 0; i < a.counts.size(); ++i) EXPECT_TRUE(at::equal(a.counts[i], b.counts[i])) << i;
}

TEST(Execution, RecomputationChangesNothing) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Outcome kept = run(dtype, config::NoAc{});
    ASSERT_EQ(kept.counts.size(), 2U);  // one mixture among the layers, one that predicts
    for (const at::Tensor& counts_E : kept.counts) {
      EXPECT_EQ(counts_E.sum().item<double>(), 2 * 16 * 2);  // sequences, positions, experts a token
    }
    for (const double aux_loss : kept.aux_losses) EXPECT_GT(aux_loss, 0);
    expect_equal(run(dtype, config::FullAc{}), kept);
    expect_equal(run(dtype, config::SelectiveAc{}), kept);
  }
}

struct Memory {
  int64_t kept, peak;
};

// What a pass over 4 sequences keeps for its backward pass, and the most that both take.
Memory memory_of(const flavor::Model& architecture, const config::Loss& kind, at::ScalarType dtype,
                 const config::ActivationCheckpoint& recompute) {
  config::Model config;
  config.architecture = architecture;
  const auto model = build_model(config, {.seq_len = 64});
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  const at::Tensor ids = at::randint(50, {4, 64}, at::kLong);
  const Batch batch = {ids, ids, at::arange(64).expand({4, 64}).contiguous()};
  const auto execution = make_local_execution(dtype, recompute);
  const BytesInUse bytes;
  const auto hidden = model->hidden(batch, *execution, true);
  const int64_t kept = bytes.now();
  loss(kind, *model, *execution, hidden, batch, 256).backward();
  return {kept, bytes.peak()};
}

TEST(Execution, RecomputationSavesMemory) {
  const flavor::Llama3 llama = {.dim = 32,
                                .n_layers = 4,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 8,
                                .hidden_dim = 96,
                                .vocab_size = 50,
                                .rope = {.max_seq_len = 64}};
  flavor::DeepSeekV3 deepseek = small_deepseek();
  deepseek.n_layers = 4;
  const auto check = [](const flavor::Model& model, const config::Loss& kind) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Memory all = memory_of(model, kind, dtype, config::NoAc{});
      const Memory some = memory_of(model, kind, dtype, config::SelectiveAc{});
      const Memory least = memory_of(model, kind, dtype, config::FullAc{});
      EXPECT_LT(some.kept, 0.85 * static_cast<double>(all.kept)) << model.text();
      EXPECT_LT(some.peak, 0.9 * static_cast<double>(all.peak)) << model.text();
      EXPECT_LT(least.kept, some.kept);
      EXPECT_LT(least.peak, some.peak);
    }
  };
  check({"", llama}, config::CrossEntropyLoss{});
  check({"", deepseek}, config::MtpLoss{});
}

TEST(Execution, RefusesAMemoryBudget) {
  EXPECT_THROW(make_local_execution(at::kFloat, config::MemoryBudgetAc{}), ValueError);
}

TEST(Loss, RefusesWhatDoesNotFit) {
  config::Trainer trainer = config::make("llama3", "llama3_debugmodel");
  std::get<flavor::Llama3>(trainer.model.architecture.dims).n_layers = 1;
  const auto model = build_model(trainer.model, {.seq_len = 12});
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  const auto execution = make_local_execution(at::kFloat, config::NoAc{});
  const at::Tensor zeros = at::zeros({1, 12}, at::kLong);
  const Batch batch = {zeros, zeros, at::arange(12).unsqueeze(0)};
  const at::NoGradGuard no_grad;
  const auto hidden = model->hidden(batch, *execution, false);
  const auto refusal = [&](const config::Loss& kind, const std::vector<at::Tensor>& states) -> std::string {
    try {
      loss(kind, *model, *execution, states, batch, 12);
    } catch (const ValueError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal(config::ChunkedLoss{}, hidden), testing::HasSubstr("must be divisible by num_chunks"));
  EXPECT_THAT(refusal(config::ChunkedLoss{}, {hidden[0], hidden[0]}), testing::HasSubstr("MTP"));
  EXPECT_THAT(refusal(config::MtpLoss{}, hidden), testing::HasSubstr("list of outputs"));
  EXPECT_EQ(refusal(config::CrossEntropyLoss{}, hidden), "accepted");
}

TEST(Model, RefusesASequenceBeyondItsPositions) {
  config::Trainer trainer = config::make("deepseek_v3", "deepseek_v3_debugmodel");
  EXPECT_THROW(build_model(trainer.model, {.seq_len = 16385}), ValueError);
  const auto model = build_model(trainer.model, {.seq_len = 8});
  const auto execution = make_local_execution(at::kFloat, config::NoAc{});
  const at::Tensor long_row = at::arange(9).unsqueeze(0);
  EXPECT_THROW(model->hidden({long_row, long_row, long_row}, *execution, false), ValueError);
}

}  // namespace
}  // namespace milepost::train
