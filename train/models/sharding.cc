#include "train/models/sharding.h"

#include <algorithm>

namespace milepost::train {
namespace {

// "layers.3.moe.routed_experts.inner_experts.w1_EFD": one matrix an expert.
bool is_routed_experts(const Parameter& parameter) {
  return parameter.name.find(".routed_experts.") != std::string::npos;
}

}  // namespace

void shard_parameters(Model& model, const DeviceMesh& mesh) {
  const int64_t num_shards = mesh.size("fsdp");
  for (Parameter* parameter : model.parameters()) {
    parameter->mesh = mesh.dense();
    parameter->rank = mesh.rank();
    parameter->placements.assign(parameter->mesh.names.size(), Placement::replicate());
    if (!parameter->trainable) continue;
    const int dim = is_routed_experts(*parameter) && num_shards > parameter->shape[0] ? 1 : 0;
    const auto fsdp = std::find(parameter->mesh.names.begin(), parameter->mesh.names.end(), "fsdp");
    parameter->placements[static_cast<size_t>(fsdp - parameter->mesh.names.begin())] = Placement::shard(dim);
  }
}

}  // namespace milepost::train
