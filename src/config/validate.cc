#include "milepost/config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/option.h"
#include "config/validate_checkpoint.h"
#include "milepost/base/error.h"
#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

void require(bool holds, std::string text) {
  if (!holds) throw ValueError(std::move(text));
}

bool compiles_model(const Compile& compile) {
  return compile.enable && std::count(compile.components.begin(), compile.components.end(), "model") != 0;
}

void validate_parallelism(const Parallelism& p, const Machine& machine) {
  require(p.context_parallel_load_balancer != "",
          "context_parallel_load_balancer cannot be an empty string. Use None to disable load balancing.");
  require(!p.enable_fsdp_symm_mem || machine.has_symmetric_memory,
          "For NVIDIA GPUs, parallelism.enable_fsdp_symm_mem is only supported for compute capability 9.0 or "
          "newer.");
}

void validate_dims(const flavor::Llama3& d) {
  require(d.dim > 0 && d.n_layers > 0 && d.n_heads > 0 && d.n_kv_heads > 0 && d.head_dim > 0 &&
              d.hidden_dim > 0 && d.vocab_size > 0,
          "every dimension of the model must be greater than 0");
  require(d.n_heads % d.n_kv_heads == 0,
          fmt::format("n_kv_heads ({}) must divide n_heads ({})", d.n_kv_heads, d.n_heads));
}

void validate_dims(const flavor::DeepSeekV3& d) {
  require(d.dim > 0 && d.n_layers > 0 && d.n_heads > 0 && d.kv_lora_rank > 0 && d.qk_nope_head_dim > 0 &&
              d.qk_rope_head_dim > 0 && d.v_head_dim > 0 && d.vocab_size > 0,
          "every dimension of the model must be greater than 0");
  require(d.n_dense_layers >= 0 && d.q_lora_rank >= 0 && d.num_shared_experts >= 0 && d.num_mtp_layers >= 0 &&
              d.num_expert_groups >= 0 && d.num_limited_groups >= 0,
          "no number of the model may be negative");
  require(d.n_dense_layers == 0 || d.hidden_dim > 0, "dense layers need a hidden_dim greater than 0");
  if (d.n_dense_layers >= d.n_layers) return;
  require(d.num_experts > 0 && d.moe_hidden_dim > 0,
          "MoE layers need num_experts and moe_hidden_dim greater than 0");
  require(d.top_k > 0 && d.top_k <= d.num_experts,
          fmt::format("top_k ({}) must be between 1 and num_experts ({})", d.top_k, d.num_experts));
  if (d.num_expert_groups == 0) return;
  require(d.num_experts % d.num_expert_groups == 0 && d.num_experts / d.num_expert_groups >= 2,
          fmt::format("num_expert_groups ({}) must divide num_experts ({}) into groups of at least 2",
                      d.num_expert_groups, d.num_experts));
  require(d.num_limited_groups >= 1 && d.num_limited_groups <= d.num_expert_groups,
          fmt::format("num_limited_groups ({}) must be between 1 and num_expert_groups ({})",
                      d.num_limited_groups, d.num_expert_groups));
}

void validate_model(const Model& model) {
  std::visit([](const auto& dims) { validate_dims(dims); }, model.architecture.dims);
  flavor::num_parameters(model.architecture);  // throws when the sizes overflow
}

void validate_dataloader(const Dataloader& loader, std::string_view section) {
  for (const DataSource& source : loader.sources) {
    require(source.weight > 0, fmt::format("every weight of {}.sources must be greater than 0", section));
  }
}

void validate_cuda_graphs(const Trainer& t) {
  require(t.parallelism.pipeline_parallel_degree <= 1,
          "CUDA graphs do not support pipeline parallelism yet. Set --training.disable_cuda_graphs.");
  if (t.parallelism.expert_parallel_degree == 1 || t.model.architecture.model() == "llama3") return;
  const ModelOptions& options = t.model.options;
  const bool waits = options.moe_comm_backend != "minimal_async_ep" &&
                     !(options.moe_comm_backend == "hybridep" && options.non_blocking_capacity_factor);
  require(!waits,
          fmt::format("CUDA graphs support only expert parallel token dispatcher configurations without CPU "
                      "synchronization. Set HybridEP non_blocking_capacity_factor, or use MinimalAsyncEP, "
                      "or set --training.disable_cuda_graphs. Unsupported token dispatcher: {}.",
                      options.moe_comm_backend.text()));
}

void validate_pipeline(const Trainer& t) {
  const int64_t microbatch = t.parallelism.pipeline_parallel_microbatch_size;
  require(microbatch > 0, "parallelism.pipeline_parallel_microbatch_size must be greater than 0.");
  require(
      t.parallelism.pipeline_parallel_degree <= 1 || t.training.local_batch_size % microbatch == 0,
      fmt::format("training.local_batch_size ({}) must be evenly divisible by "
                  "parallelism.pipeline_parallel_microbatch_size ({}) when pipeline parallelism is enabled.",
                  t.training.local_batch_size, microbatch));
}

void validate_typechecking(const Trainer& t) {
  if (!t.debug.spmd_typechecking || t.parallelism.spmd_backend != "spmd_types") return;
  require(t.parallelism.pipeline_parallel_degree <= 1,
          "SPMD typechecking is not supported with pipeline parallelism. Validate the same config without PP "
          "(--parallelism.pipeline_parallel_degree 1).");
  require(
      !std::holds_alternative<SelectiveAc>(t.activation_checkpoint) ||
          t.model.options.attn_backend == "varlen",
      "Selective activation checkpointing (SAC) is not supported with FlexAttention while SPMD typechecking "
      "is "
      "enabled. Use full activation checkpointing, disable activation checkpointing, or switch to a non-Flex "
      "attention backend.");
}

template <typename Check>
void with_key(std::string_view key, const Check& check) {
  try {
    check();
  } catch (ValueError& error) {
    error.set_key(key);
    throw;
  }
}

}  // namespace

void validate_section(Trainer& t, std::string_view section, const Machine& machine, Warnings* warnings) {
  with_key(section, [&] {
    if (section == "model") validate_model(t.model);
    if (section == "dataloader") validate_dataloader(t.dataloader, section);
    if (section == "parallelism") validate_parallelism(t.parallelism, machine);
    if (section == "checkpoint") validate_checkpoint(t.checkpoint, warnings);
    if (section == "ema_weights") validate_ema_weights(t.ema_weights);
    if (section == "compile") {
      require(!t.compile.enable_async_tensor_parallel || compiles_model(t.compile),
              "Async TP requires 'model' in --compile.components and --compile.enable");
    }
    if (section == "validator") {
      require(t.validator.steps > 0 || t.validator.steps == -1, "validation steps must be positive or -1");
      validate_dataloader(t.validator.dataloader, "validator.dataloader");
    }
  });
}

void validate_together(const Trainer& t, const Machine& machine) {
  with_key("Config", [&] {
    require(!t.debug.batch_invariant, "Batch-invariant mode is not supported in pre-training.");
    validate_pipeline(t);
    if (machine.captures_cuda_graphs && !t.training.disable_cuda_graphs) validate_cuda_graphs(t);
    validate_typechecking(t);
    require(
        !std::holds_alternative<MemoryBudgetAc>(t.activation_checkpoint) || compiles_model(t.compile),
        "Memory budget activation checkpointing requires the model to be compiled: set --compile.enable and "
        "include 'model' in --compile.components.");
  });
}

Warnings validate(Trainer& trainer, const Machine& machine) {
  Warnings warnings;
  for (const Section& section : option_tree(trainer)) {
    if (section.path.find('.') == section.path.npos)
      validate_section(trainer, section.path, machine, &warnings);
  }
  validate_together(trainer, machine);
  return warnings;
}

void validate_build(const Trainer& trainer) {
  const int64_t longest =
      std::visit([](const auto& dims) { return dims.rope.max_seq_len; }, trainer.model.architecture.dims);
  require(
      trainer.training.seq_len <= longest,
      fmt::format("Training sequence length {} exceeds attention RoPE maximum supported sequence length {}.",
                  trainer.training.seq_len, longest));
}

}  // namespace milepost::config
