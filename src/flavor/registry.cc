// The registries: TorchTitan 0.3.0's flavors, one table a model, from small to large.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "milepost/base/error.h"
#include "milepost/flavor/flavor.h"

namespace milepost::flavor {
namespace {

constexpr std::string_view kModelNames[] = {"llama3", "deepseek_v3"};

constexpr Rope kLlama3Rope = {.theta = 500000,
                              .max_seq_len = 131072,
                              .scaling = Rope::Scaling::kLlama,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original_max_seq_len = 8192};

constexpr Rope kDeepSeekRope = {.theta = 10000,
                                .max_seq_len = 16384,
                                .scaling = Rope::Scaling::kYarn,
                                .factor = 40,
                                .beta_fast = 32,
                                .beta_slow = 1,
                                .original_max_seq_len = 4096};

template <typename Dims>
struct Entry {
  std::string_view name;
  Dims dims;
};

// clang-format off
constexpr Entry<Llama3> kLlama3[] = {
    {"debugmodel", {.dim = 256, .n_layers = 6, .n_heads = 16, .n_kv_heads = 16, .head_dim = 16,
                    .hidden_dim = 768, .vocab_size = 2048, .rope = kLlama3Rope}},
    {"1B", {.dim = 2048, .n_layers = 16, .n_heads = 32, .n_kv_heads = 8, .head_dim = 64,
            .hidden_dim = 8192, .vocab_size = 128256, .tied_embeddings = true, .rope = kLlama3Rope}},
    {"3B", {.dim = 3072, .n_layers = 28, .n_heads = 24, .n_kv_heads = 8, .head_dim = 128,
            .hidden_dim = 8192, .vocab_size = 128256, .tied_embeddings = true, .rope = kLlama3Rope}},
    {"8B", {.dim = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128,
            .hidden_dim = 14336, .vocab_size = 128256, .rope = kLlama3Rope}},
    {"70B", {.dim = 8192, .n_layers = 80, .n_heads = 64, .n_kv_heads = 8, .head_dim = 128,
             .hidden_dim = 28672, .vocab_size = 128256, .rope = kLlama3Rope}},
    {"405B", {.dim = 16384, .n_layers = 126, .n_heads = 128, .n_kv_heads = 8, .head_dim = 128,
              .hidden_dim = 53248, .vocab_size = 128256, .rope = kLlama3Rope}},
};

constexpr Entry<DeepSeekV3> kDeepSeekV3[] = {
    {"debugmodel", {.dim = 256, .n_layers = 6, .n_dense_layers = 1, .n_heads = 16, .vocab_size = 2048,
                    .q_lora_rank = 0, .kv_lora_rank = 512,
                    .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128, .mscale = 0.70,
                    .hidden_dim = 1024, .moe_hidden_dim = 256,
                    .num_experts = 8, .num_shared_experts = 2, .top_k = 3,
                    .score_func = DeepSeekV3::Score::kSoftmax, .rope = kDeepSeekRope}},
    {"16B", {.dim = 2048, .n_layers = 27, .n_dense_layers = 1, .n_heads = 16, .vocab_size = 102400,
             .q_lora_rank = 0, .kv_lora_rank = 512,
             .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128, .mscale = 0.70,
             .hidden_dim = 10944, .moe_hidden_dim = 1408,
             .num_experts = 64, .num_shared_experts = 2, .top_k = 6,
             .score_func = DeepSeekV3::Score::kSoftmax, .rope = kDeepSeekRope}},
    {"236B", {.dim = 5120, .n_layers = 60, .n_dense_layers = 1, .n_heads = 128, .vocab_size = 102400,
              .q_lora_rank = 1536, .kv_lora_rank = 512,
              .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128, .mscale = 1.0,
              .hidden_dim = 12288, .moe_hidden_dim = 1536,
              .num_experts = 160, .num_shared_experts = 2, .top_k = 6,
              .score_func = DeepSeekV3::Score::kSoftmax, .num_expert_groups = 8, .num_limited_groups = 3,
              .route_scale = 16.0, .rope = kDeepSeekRope}},
    {"671B", {.dim = 7168, .n_layers = 61, .n_dense_layers = 3, .n_heads = 128, .vocab_size = 129280,
              .q_lora_rank = 1536, .kv_lora_rank = 512,
              .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128, .mscale = 1.0,
              .hidden_dim = 18432, .moe_hidden_dim = 2048,
              .num_experts = 256, .num_shared_experts = 1, .top_k = 8,
              .score_func = DeepSeekV3::Score::kSigmoid, .num_expert_groups = 8, .num_limited_groups = 4,
              .route_scale = 2.5, .route_norm = true, .rope = kDeepSeekRope}},
};
// clang-format on

template <typename Dims>
void append(std::span<const Entry<Dims>> table, std::vector<Model>* models) {
  for (const Entry<Dims>& entry : table) models->push_back({std::string(entry.name), entry.dims});
}

std::vector<Model> all_of(std::string_view model) {
  std::vector<Model> models = all();
  std::erase_if(models, [&](const Model& entry) { return entry.model() != model; });
  if (models.empty()) {
    throw ValueError(
        fmt::format("unknown model '{}'; known are {}", printable(model), fmt::join(kModelNames, ", ")));
  }
  return models;
}

bool same_dimensions(const Model& a, const Model& b) {
  if (a.model() != b.model()) return false;
  const auto of_a = variables(a), of_b = variables(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const auto& x, const auto& y) { return x == y || x.first == "num_mtp_layers"; });
}

}  // namespace

std::span<const std::string_view> model_names() { return kModelNames; }

std::vector<Model> all() {
  std::vector<Model> models;
  append<Llama3>(kLlama3, &models);
  append<DeepSeekV3>(kDeepSeekV3, &models);
  return models;
}

std::vector<std::string_view> flavor_names(std::string_view model) {
  std::vector<std::string_view> names;
  if (model == kModelNames[0]) {
    for (const auto& entry : kLlama3) names.push_back(entry.name);
  } else if (model == kModelNames[1]) {
    for (const auto& entry : kDeepSeekV3) names.push_back(entry.name);
  } else {
    all_of(model);
  }
  return names;
}

Model find(std::string_view model, std::string_view flavor) {
  for (Model& entry : all_of(model)) {
    if (entry.name == flavor) return std::move(entry);
  }
  throw ValueError(fmt::format("{} has no flavor '{}'; it has {}", model, printable(flavor),
                               fmt::join(flavor_names(model), ", ")));
}

std::optional<Model> find_equal(const Model& model) {
  for (Model& entry : all()) {
    if (same_dimensions(entry, model)) return std::move(entry);
  }
  return std::nullopt;
}

}  // namespace milepost::flavor
