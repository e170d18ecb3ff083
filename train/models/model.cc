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

// Fused projections are drawn part by part, as if they were parameters of their own. Every rank draws whole
// tensors and keeps its part, so that values do not depend on the number of ranks.
void initialize_parameter(Parameter& parameter) {
  const Box box = local_box(parameter);
  const bool is_whole = parameter.local.sizes().equals(parameter.shape);
  const at::Tensor whole =
      is_whole ? parameter.local : at::empty(parameter.shape, parameter.local.options().requires_grad(false));
  if (parameter.parts.empty()) fill(whole, parameter.init);
  for (const SavedPart& part : parameter.parts) {
    at::Tensor rows = part_view(whole, part);
    at::Tensor drawn = at::empty(rows.sizes(), rows.options().requires_grad(false));
    fill(drawn, parameter.init);
    rows.copy_(drawn);
  }
  if (is_whole) return;
  at::Tensor own = whole;
  for (size_t dim = 0; dim < box.offsets.size(); ++dim) {
    own = own.narrow(static_cast<int64_t>(dim), box.offsets[dim], box.sizes[dim]);
  }
  parameter.local.copy_(own);
}

}  // namespace

void Model::allocate(at::ScalarType dtype, at::Device device) {
  for (Parameter* parameter : parameters_) {
    const at::ScalarType kept = parameter->trainable ? dtype : at::kFloat;
    const Box box = local_box(*parameter);
    parameter->local =
        at::empty(at::IntArrayRef(box.sizes.data(), box.sizes.size()), at::TensorOptions(device).dtype(kept));
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
