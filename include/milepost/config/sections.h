// The sections of a training configuration that every model shares; checkpointing, data and model have
// headers of their own. Names, types and defaults are TorchTitan 0.3.0's (fields marked kOurs apart); the
// help text of a field is its manual. Plain values without a lock: one thread sets them, any number may then
// read.
//
// A default-constructed section holds TorchTitan's defaults; registry entries (registry.h), files and flags
// change them. What may stand together is checked by validate.h.
#pragma once

#include "milepost/config/declare.h"
#include "milepost/config/values.h"

namespace milepost::config {

inline constexpr std::string_view kParameterDtypes[] = {"bfloat16", "float32"};
inline constexpr std::string_view kReduceDtypes[] = {"float32"};
inline constexpr std::string_view kOptimizers[] = {"for-loop", "foreach", "fused", "fused_opt_states_bf16"};
inline constexpr std::string_view kDecayTypes[] = {"linear", "sqrt", "cosine"};
inline constexpr std::string_view kReshardPolicies[] = {"default", "always", "never"};
inline constexpr std::string_view kSpmdBackends[] = {"partial_dtensor", "full_dtensor", "spmd_types"};
inline constexpr std::string_view kCommModes[] = {"default", "fake_backend", "local_tensor", "torchcomms"};

inline Strings compiled_components() { return {"model", "loss"}; }
inline Strings recomputed_modules() { return {"moe.router.gate"}; }
inline FloatPair adam_betas() { return {0.9, 0.95}; }

// clang-format off
MILEPOST_CONFIG(Profiler, "Traces of time and memory.",
  (bool, enable_profiling, false, "Record traces of some training steps.")
  (std::string, save_traces_folder, "profiling/traces", "Where traces go, below the dump folder.")
  (int64_t, profile_freq, 10, "Steps from one trace to the next.")
  (std::optional<int64_t>, profiler_repeat, std::nullopt, "Number of traces; None: as many as there is time for.")
  (std::optional<int64_t>, profiler_skip_first, std::nullopt, "Steps at the start that no trace covers.")
  (std::optional<int64_t>, profiler_skip_first_wait, std::nullopt, "Traces at the start that are taken without waiting.")
  (int64_t, profiler_active, 1, "Steps that one trace covers.")
  (int64_t, profiler_warmup, 3, "Steps before those, during which the profiler runs and its records are dropped.")
  (bool, enable_memory_snapshot, false, "Record snapshots of the device's memory.")
  (std::optional<int64_t>, memory_snapshot_freq, std::nullopt, "Steps from one snapshot to the next; None: as profile_freq.")
  (std::string, save_memory_snapshot_folder, "profiling/memory_snapshot", "Where snapshots go, below the dump folder.")
  (int64_t, memory_snapshot_max_entries, 1000000, "Allocations and frees that a snapshot keeps; the oldest are dropped first.")
  (InCodeOnly, trace_post_processor, {}, "A function that sees each trace; set in code only.", kFileOnly))

MILEPOST_CONFIG(Metrics, "What is logged, and where.",
  (int64_t, log_freq, 10, "Steps from one line of metrics to the next; step 1 always has one.")
  (bool, enable_tensorboard, false, "Write TensorBoard event files.")
  (bool, disable_color_printing, false, "Print metrics without colours.")
  (std::string, save_tb_folder, "tb", "Where TensorBoard files go, below the dump folder.")
  (bool, save_for_all_ranks, false, "Write metrics of every rank, not only of the one that knows the loss.")
  (bool, enable_wandb, false, "Send metrics to Weights & Biases."))

MILEPOST_CONFIG(OptimizerKwargs, "What the optimizer of this group is made with.",
  (double, lr, 8e-4, "Highest learning rate; the scheduler multiplies it.")
  (FloatPair, betas, adam_betas(), "Decay of the first and of the second moment.")
  (double, eps, 1e-8, "Added to the denominator.")
  (double, weight_decay, 0.1, "Decoupled weight decay, of every parameter of the group."))

MILEPOST_CONFIG(ParamGroup, "",
  (std::string, pattern, ".*", "Regular expression searched for in parameter names; the first group that matches takes the parameter.")
  (std::string, optimizer_name, "AdamW", "Optimizer of the group: Adam or AdamW.")
  (OptimizerKwargs, optimizer_kwargs, {}, ""))

MILEPOST_CONFIG(Optimizer, "How parameters are updated.",
  (std::vector<ParamGroup>, param_groups, {}, "Groups of parameters with settings of their own.")
  (Choice<kOptimizers>, implementation, "fused", "Kernel of the update. All give the same numbers but fused_opt_states_bf16, which keeps both moments in bfloat16.")
  (EmptyDict, optimizer_factory_kwargs_by_name, {}, "Arguments for optimizers made by a factory; set in code only.", kFileOnly))

MILEPOST_CONFIG(LrScheduler, "Warm-up, plateau and decay of the learning rate.",
  (int64_t, warmup_steps, 200, "Steps over which the learning rate rises linearly.")
  (std::optional<int64_t>, total_steps, std::nullopt, "Steps that the schedule is laid out for; None: training.steps.")
  (std::optional<double>, decay_ratio, std::nullopt, "Share of the steps, at the end, in which the learning rate falls; None: all after the warm-up.")
  (Choice<kDecayTypes>, decay_type, "linear", "Shape of the fall.")
  (double, min_lr_factor, 0.0, "Where the fall ends, as a share of the highest learning rate."))

MILEPOST_CONFIG(Training, "Batch, length and precision.",
  (int64_t, local_batch_size, 8, "Sequences that a data-parallel rank takes at a time.")
  (int64_t, global_batch_size, -1, "Sequences of one step over all ranks and accumulations; -1: local_batch_size times the data-parallel degree.")
  (int64_t, seq_len, 2048, "Tokens of a sequence.")
  (FloatOrInt, max_norm, {1.0}, "Gradients are scaled down to this norm.")
  (int64_t, steps, 10000, "Steps of the whole run, those before a resume included.")
  (bool, enable_cpu_offload, false, "Keep parameters, gradients and optimizer states in host memory.")
  (bool, disable_cuda_graphs, false, "Do not capture steps as CUDA graphs. Milepost captures none, so both values mean the same.")
  (Choice<kParameterDtypes>, dtype, "float32", "Dtype in which parameters, gradients and optimizer states are kept.")
  (Choice<kParameterDtypes>, mixed_precision_param, "bfloat16", "Dtype to which parameters are cast for computing.")
  (Choice<kReduceDtypes>, mixed_precision_reduce, "float32", "Dtype in which gradients are summed over ranks.")
  (int64_t, gc_freq, 50, "Steps between garbage collections of Python. Accepted; there is no Python here to collect.")
  (bool, gc_debug, false, "Collect at every step and report cycles. Accepted, as gc_freq."))

MILEPOST_CONFIG(Parallelism, "How the ranks share the work. The product of all degrees but the expert-parallel one is the number of ranks.",
  (int64_t, data_parallel_replicate_degree, 1, "Copies of the (sharded) model that take different data.")
  (int64_t, data_parallel_shard_degree, -1, "Ranks over which parameters are sharded; -1: all that the other degrees leave.")
  (Choice<kReshardPolicies>, fsdp_reshard_after_forward, "default", "Whether gathered parameters are dropped after the forward pass; default: yes, unless there is a pipeline.")
  (bool, enable_fsdp_symm_mem, false, "Gather and reduce through symmetric memory (GPUs of compute capability 9.0 or later).")
  (int64_t, tensor_parallel_degree, 1, "Ranks over which single matrices are split.")
  (bool, enable_sequence_parallel, true, "Shard activations between blocks along the sequence over the tensor-parallel ranks.")
  (Choice<kSpmdBackends>, spmd_backend, "spmd_types", "How TorchTitan keeps track of placements. Milepost has one way; the names are accepted.")
  (int64_t, pipeline_parallel_degree, 1, "Ranks over which the layers are split into stages.")
  (ModelParts, module_fqns_per_model_part, std::nullopt, "Modules of each pipeline part, one comma-separated list a part; None: from the number of layers.")
  (int64_t, pipeline_parallel_first_stage_less_layers, 1, "Layers that the first stage has fewer, for the embedding.")
  (int64_t, pipeline_parallel_last_stage_less_layers, 1, "Layers that the last stage has fewer, for the output layer.")
  (std::optional<int64_t>, pipeline_parallel_layers_per_stage, std::nullopt, "Layers of a stage; None: from the schedule.")
  (std::string, pipeline_parallel_schedule, "1F1B", "Name of the pipeline schedule, such as 1F1B, Interleaved1F1B, GPipe.")
  (std::optional<std::string>, pipeline_parallel_schedule_csv, "", "File with a schedule of one's own.")
  (int64_t, pipeline_parallel_microbatch_size, 1, "Sequences of a pipeline microbatch; divides training.local_batch_size.")
  (int64_t, context_parallel_degree, 1, "Ranks over which each sequence is split.")
  (std::optional<std::string>, context_parallel_load_balancer, "headtail", "How the sequence is dealt out: headtail, ptrr, or None for contiguous pieces.")
  (std::optional<std::string>, context_parallel_ptrr_mask_key, std::nullopt, "Attention mask from which ptrr balances, where there are several.")
  (int64_t, expert_parallel_degree, 1, "Ranks over which routed experts are divided; they are borrowed from the sharding, context and tensor ranks."))

MILEPOST_CONFIG(SelectiveAc, "Keeps results of matrix products and of attention, and makes norms and gated activations between them again.",
  (bool, preserve_rng_state, true, "Recompute with the random numbers of the first time.")
  (std::string, determinism_check, "default", "How recomputed tensors are compared with the first ones.")
  (bool, debug, false, "Report what is recomputed.")
  (Strings, force_recompute_mm_shapes_by_fqns, recomputed_modules(), "Linear modules whose matrix shapes are always recomputed. Accepted; no matrix product is recomputed here."))

MILEPOST_CONFIG(FullAc, "Keeps the input of each block and recomputes the block.",
  (bool, preserve_rng_state, true, "Recompute with the random numbers of the first time.")
  (std::string, determinism_check, "default", "How recomputed tensors are compared with the first ones.")
  (bool, debug, false, "Report what is recomputed."))

MILEPOST_CONFIG(MemoryBudgetAc, "Lets the compiler choose what to keep within a budget.",
  (bool, preserve_rng_state, true, "Recompute with the random numbers of the first time.")
  (std::string, determinism_check, "default", "How recomputed tensors are compared with the first ones.")
  (bool, debug, false, "Report what is recomputed.")
  (double, memory_budget, 0.5, "0: as full recomputation; 1: what the compiler would keep by itself.")
  (bool, visualize_memory_budget_pareto, false, "Draw time against memory for budgets from 0 to 1."))

MILEPOST_CONFIG(Compile, "Compilation by torch.compile. Milepost computes eagerly; the names are accepted.",
  (bool, enable, false, "Compile the components below.")
  (bool, enable_async_tensor_parallel, false, "Overlap tensor-parallel communication with matrix products.")
  (Strings, components, compiled_components(), "What is compiled: model, loss.")
  (std::string, backend, "inductor", "Backend of the compiler."))

MILEPOST_CONFIG(Comm, "Communication between ranks.",
  (int64_t, init_timeout_seconds, 300, "Longest wait of a collective up to the end of the first step.")
  (int64_t, train_timeout_seconds, 100, "Longest wait of a collective after it.")
  (int64_t, trace_buf_size, 20000, "Collectives that the flight recorder keeps; 0: none.")
  (std::string, save_traces_folder, "comm_traces", "Where the flight recorder writes, below the dump folder.")
  (std::string, save_traces_file_prefix, "rank_", "Start of its file names.")
  (Choice<kCommModes>, mode, "default", "default: real communication. fake_backend: one process that stands for NGPU ranks, to check a configuration. local_tensor: parse, check and stop. torchcomms: another library, not in Milepost."))

MILEPOST_CONFIG(Debug, "Seeds, determinism and what helps to look inside.",
  (std::optional<int64_t>, seed, std::nullopt, "Seed of the random numbers; None: chosen by rank 0.")
  (bool, spmd_typechecking, false, "Check placements of tensors while running.")
  (bool, deterministic, false, "Use deterministic kernels, even where they are slower.")
  (bool, deterministic_warn_only, false, "Only warn where there is no deterministic kernel.")
  (bool, moe_force_load_balance, false, "Give every expert the same number of tokens, in turn.")
  (bool, detect_anomaly, false, "Find the operation that made a gradient NaN; slow.")
  (bool, batch_invariant, false, "Results that do not depend on the batch; for inference, refused in training.")
  (bool, print_config, false, "Log the whole configuration as JSON.")
  (std::optional<std::string>, save_config_file, std::nullopt, "Write the whole configuration as JSON into this file of the dump folder; --config-file reads it back.")
  (bool, enable_structured_logging, true, "Write structured logs below the dump folder.")
  (int64_t, prove_resume, 0, "Instead of a run: save after two steps, train so many more, do these once more from the checkpoint in a job built anew, and compare every loss and every tensor to the bit. 0: a run.", kOurs))

MILEPOST_CONFIG(Override, "Replacements of parts of the model.",
  (OverrideImports, imports, {}, "Targets module.function, separated by spaces or commas; target={json object} hands arguments over. Milepost knows the three fused ones of TorchTitan, which change neither names nor results."))

MILEPOST_CONFIG(Generation, "Text from a model's weights, for --generate.",
  (int64_t, max_new_tokens, 64, "Tokens after the prompt, at most; fewer where the tokenizer's end-of-text token comes.")
  (double, temperature, 0.0, "0: always the likeliest token; else tokens are drawn, the more freely the higher it is."))

MILEPOST_CONFIG(CrossEntropyLoss, "Cross-entropy over the whole vocabulary.",
  (std::optional<int64_t>, global_vocab_size, std::nullopt, "Size of the vocabulary over all tensor-parallel ranks."))

MILEPOST_CONFIG(ChunkedLoss, "Output layer and loss over pieces of the sequence, which saves memory.",
  (int64_t, num_chunks, 8, "Pieces of the sequence.")
  (CrossEntropyLoss, loss_fn, {}, ""))

MILEPOST_CONFIG(MtpLoss, "Loss of the main and of the multi-token prediction layers.",
  (std::optional<int64_t>, global_vocab_size, std::nullopt, "Size of the vocabulary over all tensor-parallel ranks.")
  (double, mtp_scale, 0.3, "Weight of the prediction layers' mean loss."))
// clang-format on

// No activation checkpointing.
struct NoAc {
  friend bool operator==(const NoAc&, const NoAc&) = default;
};
BOOST_DESCRIBE_STRUCT(NoAc, (), ())
inline std::span<const Note> notes_of(const NoAc*) { return {}; }
constexpr std::string_view section_help(const NoAc*) { return "Keeps everything."; }

// The tokenizer is made from hf_assets_path alone.
struct Tokenizer {
  friend bool operator==(const Tokenizer&, const Tokenizer&) = default;
};
BOOST_DESCRIBE_STRUCT(Tokenizer, (), ())
inline std::span<const Note> notes_of(const Tokenizer*) { return {}; }
constexpr std::string_view section_help(const Tokenizer*) { return ""; }

// Which activations are kept: on the command line a subcommand, `activation-checkpoint:full`.
using ActivationCheckpoint = std::variant<SelectiveAc, FullAc, MemoryBudgetAc, NoAc>;
using Loss = std::variant<ChunkedLoss, CrossEntropyLoss, MtpLoss>;

// Names of the alternatives, in their order, and the key that holds the name in a file.
inline constexpr std::string_view kAcPolicies[] = {"selective", "full", "memory-budget", "none"};
inline constexpr std::string_view kLosses[] = {"chunked", "cross_entropy", "mtp"};
inline std::span<const std::string_view> alternative_names(const ActivationCheckpoint*) {
  return kAcPolicies;
}
inline std::span<const std::string_view> alternative_names(const Loss*) { return kLosses; }
constexpr std::string_view alternative_key(const ActivationCheckpoint*) { return "policy"; }
constexpr std::string_view alternative_key(const Loss*) { return "type"; }

}  // namespace milepost::config
