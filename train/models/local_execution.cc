#include <utility>

#include "milepost/base/error.h"
#include "train/models/model.h"

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
  ComputeScope(const Block& block, at::TensorList sources, at::ScalarType dtype) : block_(block) {
    size_t next = 0;
    for (Parameter* parameter : block.parameters) {
      parameter->compute = parameter->trainable ? sources[next++].to(dtype) : parameter->local;
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
  static variable_list forward(AutogradContext* context, const Block* block, at::ScalarType dtype,
                               const Execution::Forward& run, int64_t num_inputs, at::TensorList arguments) {
    context->save_for_backward(arguments.vec());
    context->saved_data["inputs"] = num_inputs;
    context->saved_data["dtype"] = static_cast<int64_t>(dtype);
    auto kept = c10::make_intrusive<Kept>();
    kept->block = block;
    kept->run = run;
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    const size_t inputs = static_cast<size_t>(num_inputs);
    const ComputeScope scope(*block, arguments.slice(inputs), dtype);
    variable_list results = run(arguments.slice(0, inputs).vec());
    context->mark_non_differentiable({results.begin() + 1, results.end()});
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list leaves = leaves_of(context->get_saved_variables());
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const auto num_inputs = static_cast<size_t>(context->saved_data["inputs"].toInt());
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    variable_list wanted;
    for (const at::Tensor& leaf : leaves) {
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    variable_list found;
    {
      const at::AutoGradMode with_graph(true);
      const at::TensorList all(leaves);
      const ComputeScope scope(*kept->block, all.slice(num_inputs), dtype);
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
    Execution::Forward run;
  };
};

class LocalExecution final : public Execution {
 public:
  LocalExecution(at::ScalarType compute_dtype, bool recomputes_layers)
      : compute_dtype_(compute_dtype), recomputes_layers_(recomputes_layers) {}

  std::vector<at::Tensor> run(const Block& block, const std::vector<at::Tensor>& inputs,
                              const Forward& forward) override {
    std::vector<at::Tensor> parameters = trainable_of(block);
    if (recomputes_layers_ && block.is_layer && at::GradMode::is_enabled()) {
      std::vector<at::Tensor> arguments = inputs;
      arguments.insert(arguments.end(), parameters.begin(), parameters.end());
      return Recomputed::apply(&block, compute_dtype_, forward, static_cast<int64_t>(inputs.size()),
                               at::TensorList(arguments));
    }
    const ComputeScope scope(block, parameters, compute_dtype_);
    return forward(inputs);
  }

 private:
  at::ScalarType compute_dtype_;
  bool recomputes_layers_;
};

}  // namespace

std::unique_ptr<Execution> make_local_execution(at::ScalarType compute_dtype,
                                                const config::ActivationCheckpoint& recompute) {
  if (std::holds_alternative<config::MemoryBudgetAc>(recompute)) {
    throw ValueError("activation checkpointing by memory budget needs a compiler that chooses what to keep",
                     "use activation-checkpoint:selective, full or none");
  }
  return std::make_unique<LocalExecution>(compute_dtype, std::holds_alternative<config::FullAc>(recompute));
}

}  // namespace milepost::train
