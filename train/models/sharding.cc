#include "train/models/sharding.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace milepost::train {
namespace {

// "layers.3.moe.routed_experts.inner_experts.w1_EFD": one matrix an expert.
bool is_routed_experts(const Parameter& parameter) {
  return parameter.name.find(".routed_experts.") != std::string::npos;
}

// The dimension that tensor parallelism cuts; none where each of its ranks holds all.
std::optional<int> tp_dimension(const Parameter& parameter) {
  constexpr std::pair<const char*, int> kTable[] = {
      {"tok_embeddings.weight", 0},      {"lm_head.weight", 0},
      {"*.attention.wq.weight", 0},      {"*.attention.wq_b.weight", 0},
      {"*.attention.wkv_b.weight", 0},   {"*.attention.qkv_linear.wqkv.weight", 0},
      {"*.attention.wo.weight", 1},      {"*.feed_forward.w[13].weight", 0},
      {"*.feed_forward.w2.weight", 1},   {"*.shared_experts.w[13].weight", 0},
      {"*.shared_experts.w2.weight", 1}, {"*.routed_experts.*.w[13]_EFD", 1},
      {"*.routed_experts.*.w2_EDF", 2}};
  for (const auto& [glob, dim] : kTable) {
    if (glob_match(glob, parameter.name)) return dim;
  }
  return std::nullopt;
}

class Layout {
 public:
  explicit Layout(Mesh mesh)
      : mesh_(std::move(mesh)), placements_(mesh_.names.size(), Placement::replicate()) {}

  int64_t size(const char* name) const { return mesh_.sizes[index(name)]; }
  void set(const char* name, const Placement& placement) { placements_[index(name)] = placement; }
  void apply(const DeviceMesh& mesh, Parameter* parameter) && {
    parameter->mesh = std::move(mesh_);
    parameter->placements = std::move(placements_);
    parameter->rank = mesh.rank();
  }

 private:
  size_t index(const char* name) const {
    return static_cast<size_t>(std::find(mesh_.names.begin(), mesh_.names.end(), name) - mesh_.names.begin());
  }
  Mesh mesh_;
  std::vector<Placement> placements_;
};

// Cuts `inner_dim` over `inner` first, and what is left over `outer` along `outer_dim`.
void cut(const char* outer, int outer_dim, const char* inner, std::optional<int> inner_dim, Layout* layout) {
  const int64_t inner_size = layout->size(inner);
  if (inner_size == 1) inner_dim.reset();
  if (inner_dim) layout->set(inner, Placement::shard(*inner_dim));
  layout->set(outer, inner_dim == outer_dim ? Placement::strided_shard(outer_dim, inner_size)
                                            : Placement::shard(outer_dim));
}

}  // namespace

void shard_parameters(Model& model, const DeviceMesh& mesh) {
  const bool has_ep = mesh.degrees().ep > 1;
  for (Parameter* parameter : model.parameters()) {
    const bool is_sparse = has_ep && is_routed_experts(*parameter);
    Layout layout(is_sparse ? mesh.sparse() : mesh.dense());
    if (parameter->trainable) {
      const int64_t num_shards = is_sparse ? mesh.size("efsdp") * mesh.size("ep") : mesh.size("fsdp");
      const int dim = is_routed_experts(*parameter) && num_shards > parameter->shape[0] ? 1 : 0;
      if (is_sparse) {
        cut("efsdp", dim, "ep", 0, &layout);
      } else {
        cut("fsdp", dim, "tp", tp_dimension(*parameter), &layout);
      }
    }
    std::move(layout).apply(mesh, parameter);
  }
}

}  // namespace milepost::train
