// Models, as the trainer sees them: blocks of parameters and a forward pass.
//
// A model is built from its dimensions without memory (build_model), then given memory (allocate), then
// values: initialize(), or a checkpoint's. Its forward pass asks an Execution to run each block, which makes
// the block's parameters available in the compute dtype (and, over several ranks, gathers them), and decides
// what is kept for the backward pass. So no model knows of precision, sharding or recomputation.
//
// Threads: one thread uses a model at a time; operations inside use ATen's threads.
// Names of shapes: B sequences, L positions, D model dimension, V vocabulary, E experts, K experts a token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "milepost/config/trainer.h"
#include "train/models/parameter.h"

namespace milepost::train {

// A group of parameters that are needed together: the embedding, each layer, the head.
struct Block {
  std::string name;  // "layers.0"
  std::vector<Parameter*> parameters;
  bool is_layer = false;  // worth recomputing
};

// Runs blocks. `forward` is a pure function of its inputs and the block's parameters: it may run twice, so
// what should count once (tokens of experts) is among its results. The one-process form casts parameters to
// the compute dtype and recomputes as activation checkpointing asks; sharded data parallelism is another.
class Execution {
 public:
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
  virtual ~Execution() = default;
  // The result of forward(inputs), with every `compute` of block.parameters valid inside it (and again
  // whenever forward is repeated for the backward pass). All tensors are defined; gradients flow to the first
  // result only.
  virtual std::vector<at::Tensor> run(const Block& block, const std::vector<at::Tensor>& inputs,
                                      const Forward& forward) = 0;
  // After the backward pass of each micro-batch: when this returns, all its gradients are in
  // Parameter::local's gradients.
  virtual void finish_backward() {}
};
// One process. `compute_dtype` applies to trainable parameters; gradients arrive in Parameter::local's dtype.
//   none       keeps what the operations keep
//   full       keeps the inputs of a block of `layers`, and runs it again for the backward pass
//   selective  keeps the results of matrix products and of attention, which cost most to make, and makes
//              norms, gated activations and casts between them again (train/models/remaking.h)
//   memory-budget  is refused with a ValueError: it needs a compiler that weighs what to keep
std::unique_ptr<Execution> make_local_execution(at::ScalarType compute_dtype,
                                                const config::ActivationCheckpoint& recompute);

// One batch, int64 [B, L] each. A position of 0 begins a document; a label of -100 is ignored.
struct Batch {
  at::Tensor tokens_BL, labels_BL, positions_BL;
};

// Expert counts and biases of one mixture-of-experts layer, for the balancing that runs before each optimizer
// step.
struct ExpertLoad {
  std::string block;              // "layers.1"
  Parameter* bias_E = nullptr;    // float32 buffer; null without load_balance_coeff
  Parameter* tokens_E = nullptr;  // float32 buffer of counts since the last update, never saved
  bool is_balanced = true;        // false for multi-token prediction layers, whose bias stays
  double aux_loss = 0;            // sequence-wise loss of the forward passes since somebody set it to 0
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // In TorchTitan's order of registration, buffers included. Pointers live as long as the model.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<Block*>& blocks() const { return blocks_; }
  // Empty for dense models.
  virtual std::vector<ExpertLoad*> expert_loads() { return {}; }
  // Sees intermediate values of forward passes by name, detached: "hidden.layers.0" (what a layer gave), and
  // of a mixture of experts "router.layers.1.expert_ids", ".weights", ".scores", each [T, K] or [T, E].
  // Empty: nobody looks, and it costs nothing. With recomputation values are shown again.
  using Observer = std::function<void(const std::string& name, const at::Tensor& value)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  // What the output layer reads, [B, L, D] in the compute dtype: after the final norm, then one for each
  // multi-token prediction depth. Throws ValueError when L exceeds the RoPE table.
  virtual std::vector<at::Tensor> hidden(const Batch& batch, Execution& execution, bool training) = 0;
  // The output layer on hidden states [..., D] -> [..., V] in the compute dtype. Call inside run_head.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  // The output layer's parameters.
  virtual const Block& head() const = 0;
  // Runs `forward` with them available.
  std::vector<at::Tensor> run_head(Execution& execution, const std::vector<at::Tensor>& inputs,
                                   const Execution::Forward& forward) {
    return execution.run(head(), inputs, forward);
  }

  // Memory for all parameters, unset, `dtype` for trainable ones; at::kMeta allocates none.
  void allocate(at::ScalarType dtype, at::Device device);
  // Starting values, drawn from the default generator in TorchTitan's order (spec training, section 6).
  void initialize();

 protected:
  Model() = default;
  std::vector<Parameter*> parameters_;
  std::vector<Block*> blocks_;
  Observer observer_;
};

// The model of a configuration: dimensions, options, overrides, sequence length (for the RoPE table and its
// check, ValueError), kind of loss. Allocates nothing.
struct ModelOptions {
  int64_t seq_len = 0;
  bool force_load_balance = false;
  int64_t global_batch_size = 1;  // sequences, for the sequence-wise loss
};
std::unique_ptr<Model> build_model(const config::Model& config, const ModelOptions& options);

// Parameters and floating-point operations, as TorchTitan counts and logs them (spec training, section 14).
struct ModelSize {
  int64_t num_parameters = 0, num_active = 0, num_dense = 0, num_sparse = 0;
  int64_t flops_per_token = 0;
};
ModelSize model_size(const config::Model& config, int64_t seq_len);

}  // namespace milepost::train
