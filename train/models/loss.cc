// The output layer's logits are the largest tensors of a step, and only the loss reads them. So the loss is
// one operation of hidden states and output weights that goes over pieces of the sequence: logits, loss and
// both gradients of a piece, before the next piece. The backward pass only scales the gradients.
#include "train/models/loss.h"

#include <fmt/format.h>

#include "milepost/base/error.h"
#include "train/models/token_shift.h"
#include "train/ops/cross_entropy.h"

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Lends the output layer other tensors to compute with.
class LentWeights {
 public:
  LentWeights(const Block& head, const variable_list& weights) : head_(head) {
    for (size_t i = 0; i < weights.size(); ++i) {
      own_.push_back(head.parameters[i]->compute);
      head.parameters[i]->compute = weights[i];
    }
  }
  ~LentWeights() {
    for (size_t i = 0; i < own_.size(); ++i) head_.parameters[i]->compute = own_[i];
  }
  LentWeights(const LentWeights&) = delete;
  LentWeights& operator=(const LentWeights&) = delete;

 private:
  const Block& head_;
  variable_list own_;
};

at::Tensor piece_loss(Model& model, const at::Tensor& hidden_BLD, const at::Tensor& labels_BL) {
  return cross_entropy_sum(model.logits(hidden_BLD).flatten(0, 1), labels_BL.flatten());
}

// Arguments after `num_chunks`: labels, hidden states, then the output layer's weights.
struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static at::Tensor forward(AutogradContext* context, Model* model, int64_t num_chunks,
                            const at::Tensor& labels_BL, const at::Tensor& hidden_BLD,
                            at::TensorList weights) {
    variable_list weight_leaves, weight_grads;
    for (const at::Tensor& weight : weights) {
      weight_leaves.push_back(weight.detach().requires_grad_());
      weight_grads.push_back(at::zeros(weight.sizes(), weight.options().dtype(at::kFloat)));
    }
    const LentWeights lent(model->head(), weight_leaves);
    at::Tensor hidden_grad = at::empty_like(hidden_BLD), total = at::zeros({}, at::kFloat);
    const int64_t length = hidden_BLD.size(1) / num_chunks;
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      const at::AutoGradMode with_graph(true);
      const auto piece = [&](const at::Tensor& t) { return t.narrow(1, chunk * length, length); };
      variable_list leaves = {piece(hidden_BLD).detach().requires_grad_()};
      leaves.insert(leaves.end(), weight_leaves.begin(), weight_leaves.end());
      const at::Tensor sum = piece_loss(*model, leaves[0], piece(labels_BL));
      const variable_list grads = torch::autograd::grad({sum}, leaves);
      const at::NoGradGuard no_graph;
      total = total.to(sum.device()) + sum.detach();
      piece(hidden_grad).copy_(grads[0]);
      for (size_t i = 0; i < weight_grads.size(); ++i) weight_grads[i].add_(grads[i + 1]);
    }
    variable_list kept = {hidden_grad};
    kept.insert(kept.end(), weight_grads.begin(), weight_grads.end());
    context->save_for_backward(kept);
    return total;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list answer(3);
    for (const at::Tensor& grad : context->get_saved_variables()) answer.push_back(grad * gradients[0]);
    return answer;
  }
};

at::Tensor cross_entropy(Model& model, Execution& execution, const at::Tensor& hidden_BLD,
                         const at::Tensor& labels_BL, int64_t num_chunks) {
  const auto forward = [&](const std::vector<at::Tensor>& inputs) {
    if (!at::GradMode::is_enabled()) {
      at::Tensor total;
      for (int64_t chunk = 0, length = inputs[0].size(1) / num_chunks; chunk < num_chunks; ++chunk) {
        const auto piece = [&](const at::Tensor& t) { return t.narrow(1, chunk * length, length); };
        const at::Tensor sum = piece_loss(model, piece(inputs[0]), piece(inputs[1]));
        total = total.defined() ? total + sum : sum;
      }
      return std::vector<at::Tensor>{total};
    }
    variable_list weights;
    for (const Parameter* parameter : model.head().parameters) weights.push_back(parameter->compute);
    return std::vector<at::Tensor>{
        HeadLoss::apply(&model, num_chunks, inputs[1], inputs[0], at::TensorList(weights))};
  };
  return model.run_head(execution, {hidden_BLD, labels_BL}, forward)[0];
}

void require_plain(const std::vector<at::Tensor>& hidden, const char* kind) {
  if (hidden.size() == 1) return;
  throw ValueError(
      fmt::format("{} does not support multi-token prediction (MTP): the model has {} prediction "
                  "layers",
                  kind, hidden.size() - 1),
      "use the mtp loss");
}

at::Tensor loss_sum(const config::ChunkedLoss& kind, Model& model, Execution& execution,
                    const std::vector<at::Tensor>& hidden, const Batch& batch) {
  require_plain(hidden, "ChunkedLossWrapper");
  const int64_t length = hidden[0].size(1);
  if (kind.num_chunks < 1 || length % kind.num_chunks != 0) {
    throw ValueError(
        fmt::format("ChunkedLossWrapper sequence length must be divisible by num_chunks, got {} "
                    "and {}",
                    length, kind.num_chunks));
  }
  return cross_entropy(model, execution, hidden[0], batch.labels_BL, kind.num_chunks);
}

at::Tensor loss_sum(const config::CrossEntropyLoss&, Model& model, Execution& execution,
                    const std::vector<at::Tensor>& hidden, const Batch& batch) {
  require_plain(hidden, "CrossEntropyLoss");
  return cross_entropy(model, execution, hidden[0], batch.labels_BL, 1);
}

at::Tensor loss_sum(const config::MtpLoss& kind, Model& model, Execution& execution,
                    const std::vector<at::Tensor>& hidden, const Batch& batch) {
  if (!batch.positions_BL.defined()) throw ValueError("MTPLoss requires positions");
  if (hidden.size() < 2) {
    throw ValueError("MTPLoss requires the model to give a list of outputs, one for each depth",
                     "use a model with num_mtp_layers above 0, or another loss");
  }
  at::Tensor depths;
  const auto num_depths = static_cast<int64_t>(hidden.size()) - 1;
  for (int64_t depth = 1; depth <= num_depths; ++depth) {
    const at::Tensor follows_BL = follows_by(batch.positions_BL, depth);
    const at::Tensor sum = cross_entropy(model, execution, hidden[static_cast<size_t>(depth)],
                                         shifted_by(batch.labels_BL, follows_BL, depth, -100), 1);
    depths = depths.defined() ? depths + sum : sum;
  }
  return cross_entropy(model, execution, hidden[0], batch.labels_BL, 1) +
         depths * (kind.mtp_scale / static_cast<double>(num_depths));
}

}  // namespace

at::Tensor loss(const config::Loss& kind, Model& model, Execution& execution,
                const std::vector<at::Tensor>& hidden, const Batch& batch, int64_t global_valid_tokens) {
  const at::Tensor sum = std::visit(
      [&](const auto& options) { return loss_sum(options, model, execution, hidden, batch); }, kind);
  return sum / static_cast<double>(global_valid_tokens);
}

}  // namespace milepost::train
