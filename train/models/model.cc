#include "train/models/model.h"

#include <set>

namespace milepost::train {
namespace {

// As torch.nn.init.trunc_normal_ draws where most of the distribution lies between the bounds: values outside
// are replaced from a new draw of the whole tensor.
void fill_trunc_normal(at::Tensor& tensor, const Init& init) {
  at::Tensor drawn = at::empty(tensor.sizes(), tensor.options().requires_grad(false)).normal_(0, init.std);
  for (;;) {
    const at::Tensor outside = drawn.lt(init.low).logical_or_(drawn.gt(init.high));
    if (!outside.any().item<bool>()) break;
    drawn = at::where(outside, at::empty_like(drawn).normal_(0, init.std), drawn);
  }
  tensor.copy_(drawn);
}

void fill(at::Tensor tensor, const Init& init) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      tensor.zero_();
      return;
    case Init::Kind::kOnes:
      tensor.fill_(1);
      return;
    case Init::Kind::kNormal:
      tensor.normal_(0, init.std);
      return;
    case Init::Kind::kTruncNormal:
      fill_trunc_normal(tensor, init);
      return;
    case Init::Kind::kUniform:
      tensor.uniform_(init.low, init.high);
      return;
  }
}

// Fused projections are drawn part by part, as if they were parameters of their own.
void initialize_parameter(Parameter& parameter) {
  if (parameter.parts.empty()) {
    fill(parameter.local, parameter.init);
    return;
  }
  for (const SavedPart& part : parameter.parts) {
    at::Tensor rows = part_view(parameter.local, part);
    at::Tensor drawn = at::empty(rows.sizes(), rows.options().requires_grad(false));
    fill(drawn, parameter.init);
    rows.copy_(drawn);
  }
}

}  // namespace

void Model::allocate(at::ScalarType dtype, at::Device device) {
  for (Parameter* parameter : parameters_) {
    const at::ScalarType kept = parameter->trainable ? dtype : at::kFloat;
    parameter->local = at::empty(parameter->shape, at::TensorOptions(device).dtype(kept));
    parameter->local.set_requires_grad(parameter->trainable);
  }
}

// Blocks are in the order in which they are drawn; a parameter of two blocks (tied embeddings) is drawn with
// the last of them, the output layer, whose rule it follows.
void Model::initialize() {
  const at::NoGradGuard no_grad;
  std::set<const Parameter*> done;
  std::vector<Parameter*> order;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    const auto& own = (*block)->parameters;
    for (auto parameter = own.rbegin(); parameter != own.rend(); ++parameter) {
      if (done.insert(*parameter).second) order.push_back(*parameter);
    }
  }
  for (auto parameter = order.rbegin(); parameter != order.rend(); ++parameter) {
    if (!(*parameter)->local.is_meta()) initialize_parameter(**parameter);
  }
}

}  // namespace milepost::train
