#include <utility>

#include "milepost/base/error.h"
#include "train/models/remaking.h"
#include "train/models/weights.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<at::Tensor> trainable_of(const Block& block) {
  std::vector<at::Tensor> trainable;
  for (const Parameter* parameter : block.parameters) {
    if (parameter->trainable) trainable.push_back(parameter->local);
  }
  return trainable;
}

// The block's parameters in the compute dtype, for the life of this object. `sources` stand for the trainable
// ones, in order.
class ComputeScope {
 public:
  ComputeScope(const Block& block, at::TensorList sources, Weights& weights) : block_(block) {
    const std::vector<at::Tensor> whole = weights.materialize(block, sources);
    size_t next = 0;
    for (Parameter* parameter : block.parameters) {
      parameter->compute = parameter->trainable ? whole[next++] : parameter->local;
    }
  }
  ~ComputeScope() {
    for (Parameter* parameter : block_.parameters) parameter->compute.reset();
  }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  const Block& block_;
};

// Tensors that stand for `tensors` in a graph of their own.
variable_list leaves_of(const variable_list& tensors) {
  variable_list leaves;
  for (const at::Tensor& tensor : tensors) {
    leaves.push_back(tensor.detach().set_requires_grad(tensor.requires_grad()));
  }
  return leaves;
}

// Keeps a block's inputs only; the backward pass runs the block again and differentiates that run. Arguments:
// the inputs, then the block's trainable parameters.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static variable_list forward(AutogradContext* context, const Block* block, Weights* weights,
                               const Execution::Forward& run, int64_t num_inputs, at::TensorList arguments) {
    context->save_for_backward(arguments.vec());
    context->saved_data["inputs"] = num_inputs;
    auto kept = c10::make_intrusive<Kept>();
    kept->block = block;
    kept->weights = weights;
    kept->run = run;
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    const size_t inputs = static_cast<size_t>(num_inputs);
    const ComputeScope scope(*block, arguments.slice(inputs), *weights);
    variable_list results = run(arguments.slice(0, inputs).vec());
    context->mark_non_differentiable({results.begin() + 1, results.end()});
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list leaves = leaves_of(context->get_saved_variables());
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const auto num_inputs = static_cast<size_t>(context->saved_data["inputs"].toInt());
    kept->weights->prepare_backward(*kept->block);
    variable_list wanted;
    for (const at::Tensor& leaf : leaves) {
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    variable_list found;
    {
      const at::AutoGradMode with_graph(true);
      const at::TensorList all(leaves);
      const ComputeScope scope(*kept->block, all.slice(num_inputs), *kept->weights);
      const variable_list results = kept->run(all.slice(0, num_inputs).vec());
      found = torch::autograd::grad({results[0]}, wanted, {gradients[0]}, std::nullopt, false,
                                    /*allow_unused=*/true);
    }
    variable_list answer(4);  // what stands before the tensors has no gradient
    size_t next = 0;
    for (const at::Tensor& leaf : leaves) {
      answer.push_back(leaf.requires_grad() ? found[next++] : at::Tensor());
    }
    return answer;
  }

 private:
  struct Kept : torch::CustomClassHolder {
    const Block* block = nullptr;
    Weights* weights = nullptr;
    Execution::Forward run;
  };
};

class BlockExecution final : public Execution {
 public:
  BlockExecution(std::unique_ptr<Weights> weights, bool recomputes_layers)
      : weights_(std::move(weights)), recomputes_layers_(recomputes_layers) {}

  std::vector<at::Tensor> run(const Block& block, const std::vector<at::Tensor>& inputs,
                              const Forward& forward) override {
    std::vector<at::Tensor> parameters = trainable_of(block);
    if (recomputes_layers_ && block.is_layer && at::GradMode::is_enabled()) {
      std::vector<at::Tensor> arguments = inputs;
      arguments.insert(arguments.end(), parameters.begin(), parameters.end());
      return Recomputed::apply(&block, weights_.get(), forward, static_cast<int64_t>(inputs.size()),
                               at::TensorList(arguments));
    }
    std::vector<at::Tensor> results;
    {
      const ComputeScope scope(block, parameters, *weights_);
      results = forward(inputs);
    }
    if (at::GradMode::is_enabled() && results[0].requires_grad()) {
      weights_->release(block);
      results[0].register_hook([this, &block](const at::Tensor&) { weights_->prepare_backward(block); });
    }
    return results;
  }

  void finish_backward() override { weights_->finish_backward(); }

 private:
  std::unique_ptr<Weights> weights_;
  bool recomputes_layers_;
};

// One process: the weights are all here, and only cast.
class CastWeights final : public Weights {
 public:
  explicit CastWeights(at::ScalarType dtype) : dtype_(dtype) {}
  std::vector<at::Tensor> materialize(const Block& /*block*/, at::TensorList locals) override {
    std::vector<at::Tensor> cast;
    for (const at::Tensor& local : locals) cast.push_back(local.to(dtype_));
    return cast;
  }

 private:
  at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<Execution> make_execution(std::unique_ptr<Weights> weights,
                                          const config::ActivationCheckpoint& recompute) {
  if (std::holds_alternative<config::MemoryBudgetAc>(recompute)) {
    throw ValueError("activation checkpointing by memory budget needs a compiler that chooses what to keep",
                     "use activation-checkpoint:selective, full or none");
  }
  auto execution =
      std::make_unique<BlockExecution>(std::move(weights), std::holds_alternative<config::FullAc>(recompute));
  const bool is_selective = std::holds_alternative<config::SelectiveAc>(recompute);
  return is_selective ? remake_between_products(std::move(execution)) : std::move(execution);
}

std::unique_ptr<Execution> make_local_execution(at::ScalarType compute_dtype,
                                                const config::ActivationCheckpoint& recompute) {
  return make_execution(std::make_unique<CastWeights>(compute_dtype), recompute);
}

}  // namespace milepost::train
