#include "config/registry_tables.h"

namespace milepost::config {
namespace {

Trainer debugmodel() {
  Trainer t;
  set_model("deepseek_v3", "debugmodel", &t);
  t.metrics.log_freq = 1;
  t.optimizer = adamw(8e-4);
  t.lr_scheduler.warmup_steps = 2;
  t.lr_scheduler.decay_ratio = 0.8;
  t.training.steps = 10;
  t.checkpoint.interval = 10;
  t.checkpoint.last_save_model_only = false;
  return t;
}

Trainer debugmodel_mtp() {
  Trainer t = debugmodel();
  std::get<flavor::DeepSeekV3>(t.model.architecture.dims).num_mtp_layers = 1;
  t.loss = MtpLoss{.global_vocab_size = vocab_size(t), .mtp_scale = 0.3};
  return t;
}

Trainer debugmodel_mxfp8() {
  Trainer t = debugmodel();
  t.model.options.extras = {"mxfp8", "mxfp8_grouped_experts"};
  return t;
}

void set_hybridep(Trainer* t) {
  t->model.options.moe_comm_backend = "hybridep";
  t->model.options.non_blocking_capacity_factor = 1.0;
  t->training.disable_cuda_graphs = false;
}

// Experts on one rank, so every degree is 1.
void set_minimal_async_ep(Trainer* t) {
  t->model.options.moe_comm_backend = "minimal_async_ep";
  t->training.disable_cuda_graphs = false;
  t->parallelism.data_parallel_shard_degree = 1;
  t->parallelism.enable_sequence_parallel = false;
  t->parallelism.expert_parallel_degree = 1;
  t->parallelism.pipeline_parallel_schedule = "1F1B";
  t->override.imports = {{"torchtitan.overrides.fused_swiglu.fused_swiglu", ""},
                         {"torchtitan.overrides.fused_swiglu.fused_grouped_experts", ""}};
}

Trainer debugmodel_hybridep() {
  Trainer t = debugmodel();
  set_hybridep(&t);
  return t;
}

Trainer debugmodel_minimal_async_ep() {
  Trainer t = debugmodel();
  set_minimal_async_ep(&t);
  return t;
}

// What the three large sizes share.
Trainer large(std::string_view flavor) {
  Trainer t;
  set_model("deepseek_v3", flavor, &t);
  t.dataloader.dataset = "c4";
  t.optimizer = adamw(2.2e-4);
  t.lr_scheduler.decay_ratio = 0.8;
  t.lr_scheduler.decay_type = "cosine";
  t.lr_scheduler.min_lr_factor = 0.1;
  t.training.local_batch_size = 4;
  t.training.seq_len = 4096;
  t.training.disable_cuda_graphs = true;
  t.parallelism.pipeline_parallel_schedule = "Interleaved1F1B";
  t.compile.enable = true;
  t.compile.components = {"loss"};
  return t;
}

Trainer deepseek_v3_16b() {
  Trainer t = large("16B");
  t.hf_assets_path = "./assets/hf/deepseek-moe-16b-base";
  t.training.steps = 1000;
  t.parallelism.expert_parallel_degree = 8;
  t.checkpoint.interval = 10;
  return t;
}

Trainer deepseek_v3_16b_hybridep() {
  Trainer t = deepseek_v3_16b();
  set_hybridep(&t);
  return t;
}

Trainer deepseek_v3_16b_minimal_async_ep() {
  Trainer t = deepseek_v3_16b();
  set_minimal_async_ep(&t);
  return t;
}

Trainer deepseek_v3_671b() {
  Trainer t = large("671B");
  t.hf_assets_path = "./assets/hf/DeepSeek-V3.1-Base";
  t.lr_scheduler.warmup_steps = 2000;
  t.training.steps = 10000;
  t.parallelism.expert_parallel_degree = 2;
  return t;
}

// TorchTitan has the flavor and no entry; the schedule of the 671B one.
Trainer deepseek_v3_236b() {
  Trainer t = deepseek_v3_671b();
  set_model("deepseek_v3", "236B", &t);
  t.hf_assets_path = "./assets/hf/DeepSeek-V2";
  return t;
}

Trainer deepseek_v3_671b_float8() {
  Trainer t = deepseek_v3_671b();
  t.model.options.extras = {"float8", "float8_grouped_experts"};
  return t;
}

constexpr Entry kEntries[] = {
    {"deepseek_v3", "deepseek_v3_debugmodel", "33 M parameters, for trying things out", debugmodel},
    {"deepseek_v3", "deepseek_v3_debugmodel_mtp", "likewise, with one multi-token prediction layer",
     debugmodel_mtp},
    {"deepseek_v3", "deepseek_v3_debugmodel_mxfp8", "likewise, in mxfp8", debugmodel_mxfp8},
    {"deepseek_v3", "deepseek_v3_debugmodel_hybridep", "likewise, experts reached by HybridEP",
     debugmodel_hybridep},
    {"deepseek_v3", "deepseek_v3_debugmodel_minimal_async_ep", "likewise, experts reached by MinimalAsyncEP",
     debugmodel_minimal_async_ep},
    {"deepseek_v3", "deepseek_v3_16b", "DeepSeek MoE 16B", deepseek_v3_16b},
    {"deepseek_v3", "deepseek_v3_16b_hybridep", "likewise, experts reached by HybridEP",
     deepseek_v3_16b_hybridep},
    {"deepseek_v3", "deepseek_v3_16b_minimal_async_ep", "likewise, experts reached by MinimalAsyncEP",
     deepseek_v3_16b_minimal_async_ep},
    {"deepseek_v3", "deepseek_v3_236b", "DeepSeek V2 236B (an entry of Milepost)", deepseek_v3_236b},
    {"deepseek_v3", "deepseek_v3_671b", "DeepSeek V3 671B", deepseek_v3_671b},
    {"deepseek_v3", "deepseek_v3_671b_float8", "DeepSeek V3 671B, linear layers and experts in float8",
     deepseek_v3_671b_float8},
};

}  // namespace

std::span<const Entry> deepseek_v3_entries() { return kEntries; }

}  // namespace milepost::config
