#include <fmt/format.h>

#include <initializer_list>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/flavor/flavor.h"

namespace milepost::flavor {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// A sum of tensor sizes. Dimensions may come from a file: no product or sum wraps.
class Count {
 public:
  void add(std::initializer_list<int64_t> shape) {
    int64_t size = 0;
    const std::span<const int64_t> dims(shape.begin(), shape.size());
    if (!checked_product(dims, &size) || !checked_add(total_, size, &total_)) {
      throw ValueError("the model has more parameters than 64 bits can count, or a negative dimension",
                       "correct the dimensions", ErrorCode::kTooLarge);
    }
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

int64_t count(const Llama3& m) {
  Count layer;
  layer.add({2, m.dim});  // norms
  layer.add({2, m.n_heads, m.head_dim, m.dim});
  layer.add({2, m.n_kv_heads, m.head_dim, m.dim});
  layer.add({3, m.hidden_dim, m.dim});
  Count model;
  model.add({m.tied_embeddings ? 1 : 2, m.vocab_size, m.dim});
  model.add({m.n_layers, layer.total()});
  model.add({m.dim});
  return model.total();
}

int64_t count_attention(const DeepSeekV3& m) {
  Count attention;
  Count qk_head_dim, kv_head_dim, kv_rank;
  qk_head_dim.add({m.qk_nope_head_dim});
  qk_head_dim.add({m.qk_rope_head_dim});
  kv_head_dim.add({m.qk_nope_head_dim});
  kv_head_dim.add({m.v_head_dim});
  kv_rank.add({m.kv_lora_rank});
  kv_rank.add({m.qk_rope_head_dim});
  if (m.q_lora_rank == 0) {
    attention.add({m.n_heads, qk_head_dim.total(), m.dim});
  } else {
    attention.add({m.q_lora_rank, m.dim});
    attention.add({m.q_lora_rank});  // norm
    attention.add({m.n_heads, qk_head_dim.total(), m.q_lora_rank});
  }
  attention.add({kv_rank.total(), m.dim});
  attention.add({m.kv_lora_rank});  // norm
  attention.add({m.n_heads, kv_head_dim.total(), m.kv_lora_rank});
  attention.add({m.dim, m.n_heads, m.v_head_dim});
  attention.add({2, m.dim});  // the layer's norms
  return attention.total();
}

int64_t count(const DeepSeekV3& m) {
  const int64_t attention = count_attention(m);
  Count moe;
  moe.add({m.num_experts, m.dim});  // router
  moe.add({3, m.num_experts, m.moe_hidden_dim, m.dim});
  moe.add({3, m.num_shared_experts, m.moe_hidden_dim, m.dim});
  Count model;
  model.add({m.tied_embeddings ? 1 : 2, m.vocab_size, m.dim});
  model.add({m.dim});
  model.add({m.n_layers, attention});
  model.add({m.n_dense_layers, 3, m.hidden_dim, m.dim});
  model.add({m.n_layers - m.n_dense_layers, moe.total()});
  // An MTP layer is built like the last layer, with three norms and the projection of two vectors to one.
  model.add({m.num_mtp_layers, attention});
  if (m.n_layers > m.n_dense_layers) {
    model.add({m.num_mtp_layers, moe.total()});
  } else {
    model.add({m.num_mtp_layers, 3, m.hidden_dim, m.dim});
  }
  model.add({m.num_mtp_layers, 3, m.dim});
  model.add({m.num_mtp_layers, 2, m.dim, m.dim});
  return model.total();
}

std::vector<std::pair<std::string_view, int64_t>> list(const Llama3& m) {
  return {{"dim", m.dim},
          {"n_layers", m.n_layers},
          {"n_heads", m.n_heads},
          {"n_kv_heads", m.n_kv_heads},
          {"head_dim", m.head_dim},
          {"hidden_dim", m.hidden_dim},
          {"vocab_size", m.vocab_size},
          {"tied_embeddings", m.tied_embeddings ? 1 : 0}};
}

std::vector<std::pair<std::string_view, int64_t>> list(const DeepSeekV3& m) {
  return {{"dim", m.dim},
          {"n_layers", m.n_layers},
          {"n_dense_layers", m.n_dense_layers},
          {"n_heads", m.n_heads},
          {"vocab_size", m.vocab_size},
          {"q_lora_rank", m.q_lora_rank},
          {"kv_lora_rank", m.kv_lora_rank},
          {"qk_nope_head_dim", m.qk_nope_head_dim},
          {"qk_rope_head_dim", m.qk_rope_head_dim},
          {"v_head_dim", m.v_head_dim},
          {"hidden_dim", m.hidden_dim},
          {"moe_hidden_dim", m.moe_hidden_dim},
          {"num_experts", m.num_experts},
          {"num_shared_experts", m.num_shared_experts},
          {"top_k", m.top_k},
          {"num_expert_groups", m.num_expert_groups},
          {"num_limited_groups", m.num_limited_groups},
          {"route_norm", m.route_norm ? 1 : 0},
          {"num_mtp_layers", m.num_mtp_layers},
          {"tied_embeddings", m.tied_embeddings ? 1 : 0},
          {"qk_head_dim", m.qk_nope_head_dim + m.qk_rope_head_dim},
          {"shared_hidden_dim", m.moe_hidden_dim * m.num_shared_experts},
          {"softmax", m.score_func == DeepSeekV3::Score::kSoftmax ? 1 : 0}};
}

}  // namespace

std::string_view Model::model() const {
  return std::visit(Overloaded{[](const Llama3&) { return std::string_view("llama3"); },
                               [](const DeepSeekV3&) { return std::string_view("deepseek_v3"); }},
                    dims);
}

std::string Model::text() const {
  if (!name.empty()) return fmt::format("{} {}", model(), name);
  const int64_t n_layers = std::visit([](const auto& m) { return m.n_layers; }, dims);
  return fmt::format("a {} of {} layer{}", model(), n_layers, n_layers == 1 ? "" : "s");
}

std::vector<std::pair<std::string_view, int64_t>> variables(const Model& model) {
  return std::visit([](const auto& m) { return list(m); }, model.dims);
}

int64_t num_parameters(const Model& model) {
  return std::visit([](const auto& m) { return count(m); }, model.dims);
}

}  // namespace milepost::flavor
