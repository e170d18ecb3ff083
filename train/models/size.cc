// Parameters and floating-point operations by TorchTitan's rules (spec training, section 14): what a
// parameter counts as follows from its name.
#include <string_view>

#include "train/models/model.h"

namespace milepost::train {
namespace {

struct Counts {
  int64_t embedding = 0, dense = 0, router = 0, shared = 0, experts = 0;
};

Counts count(const Model& model) {
  Counts counts;
  for (const Parameter* parameter : model.parameters()) {
    if (!parameter->trainable) continue;
    const int64_t size = c10::multiply_integers(parameter->shape);
    const auto has = [name = std::string_view(parameter->name)](std::string_view part) {
      return name.find(part) != std::string_view::npos;
    };
    if (has("moe.shared_experts")) {
      counts.shared += size;
    } else if (has("moe.router")) {
      counts.router += size;
    } else if (has("moe.routed_experts")) {
      counts.experts += size;
    } else {
      counts.dense += size;
    }
    if (has("embedding")) counts.embedding += size;
  }
  return counts;
}

// Scores and their product with the values, for a token of a sequence of seq_len: 6 layers heads head_dims.
int64_t attention_flops(const flavor::Llama3& dims, int64_t seq_len) {
  return 6 * dims.n_layers * dims.n_heads * 2 * dims.head_dim * seq_len;
}
int64_t attention_flops(const flavor::DeepSeekV3& dims, int64_t seq_len) {
  const int64_t head_dims = dims.qk_nope_head_dim + dims.qk_rope_head_dim + dims.v_head_dim;
  return 6 * dims.n_layers * dims.n_heads * head_dims * seq_len;
}

int64_t active_experts(const flavor::Llama3&, int64_t) { return 0; }
int64_t active_experts(const flavor::DeepSeekV3& dims, int64_t parameters) {
  return dims.num_experts > 0 ? parameters * dims.top_k / dims.num_experts : 0;
}

}  // namespace

ModelSize model_size(const config::Model& config, int64_t seq_len) {
  const Counts counts = count(*build_model(config, {.seq_len = seq_len}));
  return std::visit(
      [&](const auto& dims) {
        const int64_t active = counts.router + counts.shared + active_experts(dims, counts.experts);
        ModelSize size;
        size.num_dense = counts.dense;
        size.num_sparse = counts.router + counts.shared + counts.experts;
        size.num_parameters = size.num_dense + size.num_sparse;
        size.num_active = counts.dense + active;
        const int64_t looked_up = dims.tied_embeddings ? 0 : counts.embedding;
        size.flops_per_token = 6 * (size.num_active - looked_up) + attention_flops(dims, seq_len);
        return size;
      },
      config.architecture.dims);
}

}  // namespace milepost::train
