#include "config/registry_tables.h"

namespace milepost::config {
namespace {

Trainer debugmodel() {
  Trainer t;
  set_model("llama3", "debugmodel", &t);
  t.metrics.log_freq = 1;
  t.optimizer = adamw(8e-4);
  t.lr_scheduler.warmup_steps = 2;
  t.lr_scheduler.decay_ratio = 0.8;
  t.training.steps = 10;
  t.parallelism.pipeline_parallel_schedule = "Interleaved1F1B";
  t.checkpoint.interval = 10;
  t.checkpoint.last_save_model_only = false;
  t.validator.freq = 5;
  t.validator.steps = 10;
  return t;
}

Trainer debugmodel_varlen_attn() {
  Trainer t = debugmodel();
  t.model.options.attn_backend = "varlen";
  t.training.disable_cuda_graphs = true;
  return t;
}

Trainer debugmodel_ce_loss() {
  Trainer t = debugmodel();
  t.loss = CrossEntropyLoss{.global_vocab_size = vocab_size(t)};
  return t;
}

Trainer debugmodel_with(Strings extras) {
  Trainer t = debugmodel();
  t.model.options.extras = std::move(extras);
  return t;
}
Trainer debugmodel_dist_gemm() { return debugmodel_with({"dist_gemm"}); }
Trainer debugmodel_float8() { return debugmodel_with({"float8"}); }
Trainer debugmodel_nvfp4() { return debugmodel_with({"nvfp4"}); }
Trainer debugmodel_nvfp4_first() { return debugmodel_with({"nvfp4_first_85_pct_layers"}); }
Trainer debugmodel_float8_lora() { return debugmodel_with({"float8_emulated", "lora"}); }

Trainer sft_debugmodel() {
  Trainer t = debugmodel();
  t.dataloader.dataset = "";
  t.dataloader.dataset_path = "tests/assets/sft_test/data.json";
  t.parallelism.pipeline_parallel_schedule = "1F1B";
  t.validator = {};
  t.model.options.extras = {"chat_loader"};
  return t;
}

// What the three large sizes share.
Trainer large(std::string_view flavor, double lr) {
  Trainer t;
  set_model("llama3", flavor, &t);
  t.profiler.enable_profiling = true;
  t.profiler.profile_freq = 100;
  t.metrics.enable_tensorboard = true;
  t.dataloader.dataset = "c4";
  t.optimizer = adamw(lr);
  t.training.seq_len = 8192;
  t.training.steps = 1000;
  t.validator.freq = 500;
  t.validator.steps = 1200;
  return t;
}

Trainer llama3_8b() {
  Trainer t = large("8B", 3e-4);
  t.hf_assets_path = "./assets/hf/Llama-3.1-8B";
  t.training.local_batch_size = 1;
  return t;
}

Trainer llama3_8b_with(Strings extras) {
  Trainer t = llama3_8b();
  t.model.options.extras = std::move(extras);
  return t;
}
Trainer llama3_8b_mxfp8() { return llama3_8b_with({"mxfp8"}); }
Trainer llama3_8b_nvfp4_first() { return llama3_8b_with({"nvfp4_first_85_pct_layers"}); }

Trainer llama3_70b() {
  Trainer t = large("70B", 1.5e-4);
  t.hf_assets_path = "./assets/hf/Llama-3.1-70B";
  t.training.local_batch_size = 8;
  t.parallelism.tensor_parallel_degree = 8;
  t.activation_checkpoint = FullAc{};
  return t;
}

Trainer llama3_405b() {
  Trainer t = large("405B", 8e-5);
  t.hf_assets_path = "./assets/hf/Llama-3.1-405B";
  t.lr_scheduler.warmup_steps = 600;
  t.training.local_batch_size = 2;
  t.training.steps = 3000;
  t.parallelism.tensor_parallel_degree = 8;
  t.activation_checkpoint = FullAc{};
  t.compile.enable = true;
  t.compile.enable_async_tensor_parallel = true;
  t.model.options.extras = {"float8"};
  return t;
}

constexpr Entry kEntries[] = {
    {"llama3", "llama3_debugmodel", "6 M parameters, for trying things out", debugmodel},
    {"llama3", "llama3_debugmodel_ce_loss", "likewise, with the loss in one piece", debugmodel_ce_loss},
    {"llama3", "llama3_debugmodel_varlen_attn", "likewise, with variable-length attention",
     debugmodel_varlen_attn},
    {"llama3", "llama3_debugmodel_dist_gemm", "likewise, with distributed matrix products",
     debugmodel_dist_gemm},
    {"llama3", "llama3_debugmodel_float8", "likewise, in float8", debugmodel_float8},
    {"llama3", "llama3_debugmodel_float8_emulate_lora", "likewise, emulated float8 and LoRA",
     debugmodel_float8_lora},
    {"llama3", "llama3_debugmodel_nvfp4", "likewise, in nvfp4", debugmodel_nvfp4},
    {"llama3", "llama3_debugmodel_first_85_pct_layers_nvfp4", "likewise, most layers in nvfp4",
     debugmodel_nvfp4_first},
    {"llama3", "sft_debugmodel", "fine-tuning of the debug model on chats", sft_debugmodel},
    {"llama3", "llama3_8b", "Llama 3.1 8B", llama3_8b},
    {"llama3", "llama3_8b_mxfp8", "Llama 3.1 8B in mxfp8", llama3_8b_mxfp8},
    {"llama3", "llama3_8b_first_85_pct_layers_nvfp4", "Llama 3.1 8B, most layers in nvfp4",
     llama3_8b_nvfp4_first},
    {"llama3", "llama3_70b", "Llama 3.1 70B", llama3_70b},
    {"llama3", "llama3_405b", "Llama 3.1 405B, linear layers in float8", llama3_405b},
};

}  // namespace

std::span<const Entry> llama3_entries() { return kEntries; }

}  // namespace milepost::config
