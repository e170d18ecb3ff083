// What is kept for the backward pass, in elements of the compute dtype for each token of a layer, follows the
// operations of train/models: norms and products keep their inputs, attention keeps queries, keys, values and
// its result, gated activations keep both halves.
#include "train/run/estimate.h"

#include <fmt/format.h>

#include <algorithm>

#include "train/run/metrics.h"
#include "train/run/model_log.h"

namespace milepost::train {
namespace {

constexpr int64_t kBf16 = 2, kFloat32 = 4;

// Bytes that a layer keeps for a token where nothing is made again, and those of them that selective
// recomputation makes again (models/remaking.h): what norms and gated activations give.
struct LayerBytes {
  int64_t all = 0, remade = 0;
};

// Layers of each kind, and what one keeps.
struct Layers {
  int64_t num_dense = 0, num_mixture = 0;
  LayerBytes dense, mixture;
};

// In the compute dtype, an element of which takes `size` bytes.
Layers layers_of(const flavor::Llama3& d, int64_t size) {
  const int64_t heads = (2 * d.n_heads + 2 * d.n_kv_heads) * d.head_dim;  // q, result; k, v
  const int64_t around = 4 * d.dim;  // inputs of both norms, and what they give
  const LayerBytes dense = {size * (heads + around + 3 * d.hidden_dim), size * (2 * d.dim + d.hidden_dim)};
  return {d.n_layers, 0, dense, {}};
}

// Prediction layers are as the last one.
Layers layers_of(const flavor::DeepSeekV3& d, int64_t size) {
  const int64_t query = d.qk_nope_head_dim + d.qk_rope_head_dim, value = d.v_head_dim;
  // Queries, keys, the projection that holds the values, the result.
  const int64_t heads = d.n_heads * (2 * query + (d.qk_nope_head_dim + value) + value);
  const int64_t latent = 2 * d.kv_lora_rank + d.qk_rope_head_dim + 2 * d.q_lora_rank;
  const int64_t around = 4 * d.dim;  // inputs of both norms, and what they give
  const int64_t attention = heads + latent + around;
  const int64_t shared = 3 * d.moe_hidden_dim * d.num_shared_experts;
  const int64_t routed = d.top_k * (2 * d.dim + 3 * d.moe_hidden_dim);
  const int64_t wide_input = size == kFloat32 ? 0 : kFloat32 * d.dim;  // the router's, in float32
  const int64_t router = wide_input + kFloat32 * 3 * d.num_experts;
  const int64_t norms = 2 * d.dim + d.kv_lora_rank + d.q_lora_rank;
  Layers layers;
  layers.dense = {size * (attention + 3 * d.hidden_dim), size * (norms + d.hidden_dim)};
  layers.mixture = {size * (attention + shared) + kBf16 * routed + router,
                    size * (norms + shared / 3) + wide_input};
  layers.num_dense = std::min(d.n_dense_layers, d.n_layers);
  layers.num_mixture = d.n_layers - layers.num_dense;
  (layers.num_mixture == 0 ? layers.num_dense : layers.num_mixture) += d.num_mtp_layers;
  return layers;
}

// What layers keep for a token until their backward passes, with what the largest makes again for its own.
int64_t kept_bytes(const Layers& layers, const config::ActivationCheckpoint& recompute, int64_t input_bytes) {
  int64_t kept = 0, largest_remade = 0;
  const auto add = [&](int64_t count, const LayerBytes& layer) {
    if (count == 0) return;
    LayerBytes each = layer;
    if (std::holds_alternative<config::FullAc>(recompute)) {
      each.remade = each.all;
      kept += count * input_bytes;
    } else if (!std::holds_alternative<config::SelectiveAc>(recompute)) {
      each.remade = 0;
    }
    kept += count * (each.all - each.remade);
    largest_remade = std::max(largest_remade, each.remade);
  };
  add(layers.num_dense, layers.dense);
  add(layers.num_mixture, layers.mixture);
  return kept + largest_remade;
}

// Elements of parameters, this rank's and of the whole model.
struct Sizes {
  int64_t trainable = 0, buffers = 0;  // this rank's
  int64_t all_trainable = 0, all_saved_buffers = 0;
  int64_t largest_block = 0;  // as it is gathered: whole, but for what tp and ep divide
  bool is_sharded = false;
};

// Elements of a parameter while its layer runs.
int64_t gathered_elements(const Parameter& parameter) {
  int64_t elements = c10::multiply_integers(parameter.shape);
  for (size_t i = 0; i < parameter.placements.size(); ++i) {
    const bool stays_divided = parameter.mesh.names[i] == "tp" || parameter.mesh.names[i] == "ep";
    if (!stays_divided || parameter.placements[i].kind == Placement::Kind::kReplicate) continue;
    elements = (elements + parameter.mesh.sizes[i] - 1) / parameter.mesh.sizes[i];
  }
  return elements;
}

Sizes sizes_of(const Model& model) {
  Sizes sizes;
  for (const Parameter* parameter : model.parameters()) {
    const int64_t whole = c10::multiply_integers(parameter->shape);
    const int64_t local = c10::multiply_integers(local_box(*parameter).sizes);
    (parameter->trainable ? sizes.trainable : sizes.buffers) += local;
    if (parameter->trainable) sizes.all_trainable += whole;
    if (!parameter->trainable && parameter->saved) sizes.all_saved_buffers += whole;
    sizes.is_sharded |= parameter->mesh.num_ranks() > 1;
  }
  for (const Block* block : model.blocks()) {
    int64_t size = 0;
    for (const Parameter* parameter : block->parameters) size += gathered_elements(*parameter);
    sizes.largest_block = std::max(sizes.largest_block, size);
  }
  return sizes;
}

// Parameters in the compute dtype: all of them where the graph holds them, else a block's. Sharded: two
// blocks, the one that runs and the next, and one block's gradients on their way.
int64_t copied_bytes(const config::Trainer& config, const Sizes& sizes, int64_t size) {
  if (sizes.is_sharded) return sizes.largest_block * (2 * size + size + kFloat32);
  if (config.training.mixed_precision_param == config.training.dtype) return 0;
  const bool keeps_inputs_only = std::holds_alternative<config::FullAc>(config.activation_checkpoint);
  return size * (keeps_inputs_only ? sizes.largest_block : sizes.trainable);
}

int64_t activation_bytes(const config::Trainer& config, const Sizes& sizes) {
  const int64_t size = config.training.mixed_precision_param == "bfloat16" ? kBf16 : kFloat32;
  const config::Parallelism& degrees = config.parallelism;
  const int64_t tp = std::max<int64_t>(1, degrees.tensor_parallel_degree);
  const int64_t cp = std::max<int64_t>(1, degrees.context_parallel_degree);
  const int64_t pp = std::max<int64_t>(1, degrees.pipeline_parallel_degree);
  const int64_t tokens = config.training.local_batch_size * config.training.seq_len / cp;
  const auto* chunked = std::get_if<config::ChunkedLoss>(&config.loss);
  return std::visit(
      [&](const auto& dims) {
        const int64_t layers =
            tokens * kept_bytes(layers_of(dims, size), config.activation_checkpoint, size * dims.dim);
        // The end of the model: final norm, hidden states and their gradient; logits of a piece in float32
        // with their gradient; the output layer's gradient.
        const int64_t pieces = chunked != nullptr ? std::max<int64_t>(1, chunked->num_chunks) : 1;
        const int64_t logits = tokens / pieces * dims.vocab_size * (2 * kFloat32);
        const int64_t end = tokens * 4 * size * dims.dim + logits + dims.vocab_size * dims.dim * kFloat32;
        return (layers / pp + end) / tp + copied_bytes(config, sizes, size);
      },
      config.model.architecture.dims);
}

}  // namespace

MemoryEstimate estimate_memory(const config::Trainer& config, const Model& model) {
  const int64_t kept = config.training.dtype == "bfloat16" ? kBf16 : kFloat32;
  const int64_t moment = config.optimizer.implementation == "fused_opt_states_bf16" ? kBf16 : kept;
  const Sizes sizes = sizes_of(model);
  MemoryEstimate estimate;
  estimate.parameters = sizes.trainable * kept + sizes.buffers * kFloat32;
  estimate.gradients = sizes.trainable * kept;
  estimate.moments = 2 * sizes.trainable * moment;
  estimate.activations = activation_bytes(config, sizes);
  const int64_t average = config.ema_weights.enable ? kept : 0;
  estimate.averages = sizes.trainable * average;
  estimate.checkpoint_bytes =
      sizes.all_trainable * (kept + 2 * moment + average) + sizes.all_saved_buffers * kFloat32;
  return estimate;
}

int64_t causal_flops_per_token(const config::Model& config, int64_t seq_len) {
  const int64_t all = model_size(config, seq_len).flops_per_token;
  if (seq_len < 2) return all;
  // Those of the scores grow with the length, the others do not.
  const int64_t of_position = (all - model_size(config, 1).flops_per_token) / (seq_len - 1);
  return all - of_position * (seq_len - 1) / 2;
}

std::string memory_text(const MemoryEstimate& e) {
  return fmt::format(
      "parameters {:.2f} + gradients {:.2f} + moments {:.2f}{} + activations {:.2f} = {:.2f} GiB",
      gib(e.parameters), gib(e.gradients), gib(e.moments),
      e.averages == 0 ? "" : fmt::format(" + averages {:.2f}", gib(e.averages)), gib(e.activations),
      gib(e.total()));
}

}  // namespace milepost::train
