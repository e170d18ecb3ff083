#include "milepost/config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Change = std::function<void(Trainer&)>;

// "section: text" of the first condition that does not hold; "" when all do.
std::string refusal(const Change& change, const Machine& machine = {},
                    const char* name = "deepseek_v3_debugmodel") {
  Trainer trainer = make(name[0] == 'l' ? "llama3" : "deepseek_v3", name);
  change(trainer);
  try {
    validate(trainer, machine);
  } catch (const ValueError& error) {
    return error.key() + ": " + error.summary();
  }
  return "";
}

constexpr const char* kRemote = "s3://bucket/path";

TEST(ValidateCheckpoint, RefusesInTheOrderOfTheReference) {
  // Each step mends the condition before it; all later ones are broken from the start.
  Trainer trainer = make("llama3", "llama3_debugmodel");
  Checkpoint& c = trainer.checkpoint;
  c.folder = " \t";
  c.interval = 0;
  c.keep_latest_k = -1;
  c.exclude_from_loading = {"optimizer", "model"};
  c.initial_load_path = " relative/path ";
  c.initial_load_in_hf = true;
  c.initial_load_model_only = false;
  c.initial_load_in_hf_quantized = true;
  c.last_save_in_hf = true;
  c.last_save_model_only = false;
  c.load_step = -7;
  c.keep_every = -5;
  c.extensions.require_manifest = true;
  c.fallback_to_older = true;
  const std::pair<const char*, std::function<void()>> steps[] = {
      {"The 'folder' field cannot be empty.", [&] { c.folder = kRemote; }},
      {"Checkpoint interval needs to be at least 1 step.", [&] { c.interval = 1; }},
      {"keep_latest_k cannot be negative.", [&] { c.keep_latest_k = 1; }},
      {"We need to maintain at least 2 checkpoint replicas, as the last one may be in the process of being "
       "saved.",
       [&] { c.keep_latest_k = 2; }},
      {"model key shouldn't be in exclude_from_loading.", [&] { c.exclude_from_loading = {"optimizer"}; }},
      {"initial_load_path must be an absolute path or a remote URI (e.g. gs://...): relative/path",
       [&] { c.initial_load_path = " "; }},
      {"initial_load_path must be an absolute path or a remote URI (e.g. gs://...): ",
       [&] { c.initial_load_path = kRemote; }},
      {"initial_load_in_hf requires initial_load_model_only.",
       [&] {
         c.initial_load_model_only = true;
         c.initial_load_path.reset();
       }},
      {"initial_load_in_hf_quantized requires initial_load_in_hf and initial_load_path.",
       [&] { c.initial_load_path = kRemote; }},
      {"last_save_in_hf requires last_save_model_only=True.", [&] { c.last_save_model_only = true; }},
      {"last_save_in_hf is not supported with a remote checkpoint.folder: s3://bucket/path",
       [&] { c.folder = "checkpoint"; }},
      {"initial_load_in_hf is not supported with a remote initial_load_path: s3://bucket/path",
       [&] { c.initial_load_path = "/absolute"; }},
      {"checkpoint.load_step must be a step or -1, the newest one, got -7", [&] { c.load_step = -1; }},
      {"checkpoint.keep_every must be a number of steps or 0, got -5", [&] { c.keep_every = 5; }},
      {"checkpoint.extensions.require_manifest requires checkpoint.extensions.verify_hash_manifest.",
       [&] { c.extensions.require_manifest = false; }},
      {"checkpoint.fallback_to_older requires checkpoint.extensions.verify_hash_manifest.",
       [&] { c.extensions.verify_hash_manifest = true; }},
  };
  for (const auto& [text, mend] : steps) {
    try {
      validate(trainer, {});
      ADD_FAILURE() << "accepted where this was expected: " << text;
    } catch (const ValueError& error) {
      EXPECT_EQ(error.summary(), text);
      EXPECT_EQ(error.key(), "checkpoint");
    }
    mend();
  }
  EXPECT_NO_THROW(validate(trainer, {}));
}

TEST(ValidateCheckpoint, TrimsTheInitialPath) {
  Trainer trainer = make("llama3", "llama3_debugmodel");
  trainer.checkpoint.initial_load_path = "  /some/step-5\n";
  EXPECT_THAT(validate(trainer, {}), testing::IsEmpty());
  EXPECT_EQ(trainer.checkpoint.initial_load_path, "/some/step-5");
}

TEST(ValidateCheckpoint, RefusesQuantisedWithoutHuggingFace) {
  EXPECT_EQ(refusal([](Trainer& t) {
              t.checkpoint.initial_load_in_hf_quantized = true;
              t.checkpoint.initial_load_path = "/a";
            }),
            "checkpoint: initial_load_in_hf_quantized requires initial_load_in_hf and initial_load_path.");
}

TEST(ValidateCheckpoint, WarnsEvenWhenDisabled) {
  Trainer trainer = make("llama3", "llama3_debugmodel");
  ASSERT_FALSE(trainer.checkpoint.enable);
  EXPECT_THAT(validate(trainer, {}),
              ElementsAre("initial_load_model_only=True has no effect without an initial_load_path."));
  trainer.checkpoint.load_only = trainer.checkpoint.enable_first_step_checkpoint = true;
  EXPECT_THAT(validate(trainer, {}),
              ElementsAre("checkpoint.load_only is True; enable_first_step_checkpoint will be ignored.",
                          HasSubstr("has no effect")));
}

TEST(ValidateEma, RefusesWhatNeverUpdatesOrGrows) {
  for (double decay : {-0.1, 1.0, 1.5}) {
    EXPECT_EQ(refusal([&](Trainer& t) { t.ema_weights.decay = decay; }),
              "ema_weights: ema_weights.decay must be in [0, 1) when set");
  }
  EXPECT_EQ(refusal([](Trainer& t) { t.ema_weights.decay = 0; }), "");
  EXPECT_THAT(refusal([](Trainer& t) { t.ema_weights.half_life_fraction = 0; }),
              HasSubstr("half_life_fraction"));
  EXPECT_EQ(refusal([](Trainer& t) {
              t.ema_weights.half_life_fraction = 0;
              t.ema_weights.decay = 0.5;
            }),
            "");
  EXPECT_THAT(refusal([](Trainer& t) { t.ema_weights.update_every_n_steps = 0; }),
              HasSubstr("update_every_n_steps must be at least 1"));
}

TEST(Validate, RefusesBatchInvariance) {
  EXPECT_EQ(refusal([](Trainer& t) { t.debug.batch_invariant = true; }),
            "Config: Batch-invariant mode is not supported in pre-training.");
}

TEST(Validate, RefusesMicrobatchesThatDoNotFit) {
  EXPECT_EQ(refusal([](Trainer& t) { t.parallelism.pipeline_parallel_microbatch_size = 0; }),
            "Config: parallelism.pipeline_parallel_microbatch_size must be greater than 0.");
  const auto three = [](Trainer& t) { t.parallelism.pipeline_parallel_microbatch_size = 3; };
  EXPECT_EQ(refusal(three), "");
  EXPECT_EQ(refusal([&](Trainer& t) {
              three(t);
              t.parallelism.pipeline_parallel_degree = 2;
            }),
            "Config: training.local_batch_size (8) must be evenly divisible by "
            "parallelism.pipeline_parallel_microbatch_size (3) when pipeline parallelism is enabled.");
}

TEST(Validate, LooksAtCudaGraphsOnlyWhereTheyAreCaptured) {
  const Machine with_graphs{.captures_cuda_graphs = true};
  const auto pipeline = [](Trainer& t) { t.parallelism.pipeline_parallel_degree = 2; };
  const auto experts = [](Trainer& t) { t.parallelism.expert_parallel_degree = 2; };
  EXPECT_EQ(refusal(pipeline), "");
  EXPECT_EQ(refusal(experts), "");
  EXPECT_EQ(
      refusal(pipeline, with_graphs),
      "Config: CUDA graphs do not support pipeline parallelism yet. Set --training.disable_cuda_graphs.");
  EXPECT_THAT(refusal(experts, with_graphs),
              HasSubstr("Set HybridEP non_blocking_capacity_factor, or use "
                        "MinimalAsyncEP, or set --training.disable_cuda_graphs."));
  EXPECT_EQ(refusal(experts, with_graphs, "llama3_debugmodel"), "");
  EXPECT_EQ(refusal(experts, with_graphs, "deepseek_v3_debugmodel_hybridep"), "");
  EXPECT_EQ(refusal(experts, with_graphs, "deepseek_v3_debugmodel_minimal_async_ep"), "");
  const auto without_capacity = [&](Trainer& t) {
    experts(t);
    t.model.options.non_blocking_capacity_factor.reset();
  };
  EXPECT_THAT(refusal(without_capacity, with_graphs, "deepseek_v3_debugmodel_hybridep"),
              HasSubstr("hybridep"));
  EXPECT_EQ(refusal(
                [&](Trainer& t) {
                  experts(t);
                  t.training.disable_cuda_graphs = true;
                },
                with_graphs),
            "");
}

TEST(Validate, RefusesTypecheckingWithPipelinesAndSelectiveRecomputation) {
  const auto check = [](Trainer& t) { t.debug.spmd_typechecking = true; };
  EXPECT_THAT(refusal(check), HasSubstr("Config: Selective activation checkpointing (SAC) is not supported"));
  EXPECT_THAT(refusal([&](Trainer& t) {
                check(t);
                t.parallelism.pipeline_parallel_degree = 2;
              }),
              HasSubstr("SPMD typechecking is not supported with pipeline parallelism."));
  const auto with_full = [&](Trainer& t) {
    check(t);
    t.activation_checkpoint = FullAc{};
  };
  EXPECT_EQ(refusal(with_full), "");
  EXPECT_EQ(refusal([&](Trainer& t) {
              check(t);
              t.parallelism.spmd_backend = "full_dtensor";
            }),
            "");
  EXPECT_EQ(refusal(check, {}, "llama3_debugmodel_varlen_attn"), "");
}

TEST(Validate, RefusesAMemoryBudgetWithoutACompiledModel) {
  const auto budget = [](Trainer& t) { t.activation_checkpoint = MemoryBudgetAc{}; };
  EXPECT_THAT(refusal(budget),
              HasSubstr("Config: Memory budget activation checkpointing requires the model"));
  EXPECT_EQ(refusal([&](Trainer& t) {
              budget(t);
              t.compile.enable = true;
            }),
            "");
}

TEST(Validate, RefusesAsyncTensorParallelismWithoutACompiledModel) {
  const auto async = [](Trainer& t) { t.compile.enable_async_tensor_parallel = true; };
  const std::string text = "compile: Async TP requires 'model' in --compile.components and --compile.enable";
  EXPECT_EQ(refusal(async), text);
  EXPECT_EQ(refusal([&](Trainer& t) {
              async(t);
              t.compile.enable = true;
              t.compile.components = {"loss"};
            }),
            text);
}

TEST(Validate, RefusesSymmetricMemoryWithoutTheHardware) {
  const auto symmetric = [](Trainer& t) { t.parallelism.enable_fsdp_symm_mem = true; };
  EXPECT_THAT(refusal(symmetric),
              HasSubstr("parallelism: For NVIDIA GPUs, parallelism.enable_fsdp_symm_mem is only"));
  EXPECT_EQ(refusal(symmetric, {.has_symmetric_memory = true}), "");
}

TEST(Validate, RefusesAnEmptyLoadBalancer) {
  EXPECT_EQ(refusal([](Trainer& t) { t.parallelism.context_parallel_load_balancer = ""; }),
            "parallelism: context_parallel_load_balancer cannot be an empty string. Use None to disable load "
            "balancing.");
  EXPECT_EQ(refusal([](Trainer& t) { t.parallelism.context_parallel_load_balancer.reset(); }), "");
}

TEST(Validate, TakesMinusOneAndPositiveValidationSteps) {
  for (int64_t steps : {0, -2}) {
    EXPECT_EQ(refusal([&](Trainer& t) { t.validator.steps = steps; }),
              "validator: validation steps must be positive or -1");
  }
  EXPECT_EQ(refusal([](Trainer& t) { t.validator.steps = 7; }), "");
}

TEST(Validate, RefusesModelsThatCannotBe) {
  const auto with = [](void (*change)(flavor::DeepSeekV3&)) {
    return refusal([&](Trainer& t) { change(std::get<flavor::DeepSeekV3>(t.model.architecture.dims)); });
  };
  EXPECT_THAT(with([](flavor::DeepSeekV3& d) { d.dim = 0; }), HasSubstr("model: every dimension"));
  EXPECT_THAT(with([](flavor::DeepSeekV3& d) { d.top_k = 9; }), HasSubstr("top_k (9)"));
  EXPECT_THAT(with([](flavor::DeepSeekV3& d) { d.num_expert_groups = 3; }),
              HasSubstr("num_expert_groups (3)"));
  EXPECT_THAT(with([](flavor::DeepSeekV3& d) { d.num_mtp_layers = -1; }), HasSubstr("negative"));
  EXPECT_NE(with([](flavor::DeepSeekV3& d) { d.dim = d.vocab_size = INT64_MAX / 2; }), "");
  EXPECT_EQ(with([](flavor::DeepSeekV3& d) { d.n_dense_layers = d.n_layers; }), "");
}

TEST(ValidateBuild, RefusesSequencesBeyondTheModelsPositions) {
  Trainer trainer = make("deepseek_v3", "deepseek_v3_debugmodel");
  trainer.training.seq_len = 16384;
  EXPECT_NO_THROW(validate_build(trainer));
  trainer.training.seq_len = 16385;
  EXPECT_NO_THROW(validate(trainer, {}));
  try {
    validate_build(trainer);
    ADD_FAILURE();
  } catch (const ValueError& error) {
    EXPECT_EQ(
        error.summary(),
        "Training sequence length 16385 exceeds attention RoPE maximum supported sequence length 16384.");
  }
}

TEST(Validate, AcceptsEveryRegistryEntry) {
  for (const Entry& entry : entries()) {
    Trainer trainer = entry.make();
    EXPECT_NO_THROW(validate_build(trainer)) << entry.name;
    EXPECT_NO_THROW(validate(trainer, {})) << entry.name;
    EXPECT_NO_THROW(validate(trainer, {.captures_cuda_graphs = true})) << entry.name;
  }
}

}  // namespace
}  // namespace milepost::config
