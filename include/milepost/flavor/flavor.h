// Flavors: the dimensions of every model size, declared once, for converter, configuration and trainer.
//
// Names are TorchTitan's (`dim`, `n_layers`, `q_lora_rank`, ...), values those of its 0.3.0 registries. A
// flavor is a plain value; a model that no registry holds (read from a `config.json`) is one too, with an
// empty `name`. Everything here is pure; any thread may call anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace milepost::flavor {

// Rotary embedding: theta and how frequencies are stretched for long contexts.
struct Rope {
  enum class Scaling : uint8_t { kNone, kLlama, kYarn };
  double theta = 10000;
  int64_t max_seq_len = 0;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama
  double beta_fast = 32, beta_slow = 1;              // kYarn
  int64_t original_max_seq_len = 0;                  // context length before stretching
  friend bool operator==(const Rope&, const Rope&) = default;
};

struct Llama3 {
  int64_t dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0;
  int64_t head_dim = 0;    // dim / n_heads in every registry flavor
  int64_t hidden_dim = 0;  // of the feed-forward layers
  int64_t vocab_size = 0;
  bool tied_embeddings = false;  // lm_head.weight is tok_embeddings.weight
  double norm_eps = 1e-5;
  Rope rope = {};
  friend bool operator==(const Llama3&, const Llama3&) = default;
};

struct DeepSeekV3 {
  enum class Score : uint8_t { kSoftmax, kSigmoid };
  int64_t dim = 0, n_layers = 0, n_dense_layers = 0, n_heads = 0, vocab_size = 0;
  int64_t q_lora_rank = 0;  // 0: one query projection
  int64_t kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  double mscale = 1;
  int64_t hidden_dim = 0;      // of dense layers
  int64_t moe_hidden_dim = 0;  // of one expert
  int64_t num_experts = 0, num_shared_experts = 0, top_k = 0;
  Score score_func = Score::kSoftmax;
  int64_t num_expert_groups = 0, num_limited_groups = 0;  // 0: no groups
  double route_scale = 1;
  bool route_norm = false;
  int64_t num_mtp_layers = 0;
  bool tied_embeddings = false;
  double norm_eps = 1e-5;
  Rope rope = {};
  friend bool operator==(const DeepSeekV3&, const DeepSeekV3&) = default;
};

struct Model {
  std::string name;  // of the flavor: "8B"; empty when it is in no registry
  std::variant<Llama3, DeepSeekV3> dims;

  // "llama3", "deepseek_v3".
  std::string_view model() const;
  // "deepseek_v3 671B"; "a deepseek_v3 of 3 layers" without a name.
  std::string text() const;
};

// Names of the models, and of a model's flavors from small to large. Unknown model: ValueError that lists the
// known ones.
std::span<const std::string_view> model_names();
std::vector<std::string_view> flavor_names(std::string_view model);

// A registry entry. Throws ValueError for an unknown model or flavor, listing what there is.
Model find(std::string_view model, std::string_view flavor);
// All registry entries of all models.
std::vector<Model> all();
// The registry entry with the same dimensions: everything that variables() lists, num_mtp_layers apart;
// nullopt when there is none. Norm eps, RoPE, mscale and route_scale are not compared: releases differ in
// them from TorchTitan's registry (DeepSeek-V3 has eps 1e-6 and a context of 163840, Llama 3.2 1B a RoPE
// factor of 32). Compare `dims` with == where those matter.
std::optional<Model> find_equal(const Model& model);

// The integers that tensor shapes and conditions are made of, by name: "dim", "n_layers", "q_lora_rank",
// "tied_embeddings" (0 or 1), and so on: every integer or bool field of the struct, under its own name; and
// "qk_head_dim" (nope + rope), "shared_hidden_dim" (moe_hidden_dim * num_shared_experts), "softmax" (0 or 1)
// for DeepSeek.
std::vector<std::pair<std::string_view, int64_t>> variables(const Model& model);

// Parameters of the model as TorchTitan counts them (buffers such as the expert bias not; tied embeddings
// once), MTP layers included. Throws ValueError (kTooLarge) when they exceed 64 bits or a dimension is
// negative.
int64_t num_parameters(const Model& model);

// The model made smaller, to within about a tenth of `num_parameters`: same structure (dense and MoE layers,
// lora or not, shared experts, groups, MTP layers; top_k, RoPE and scales as they are), and nothing larger
// than before. Layers go first, down to a quarter of them; then widths, heads, experts and vocabulary shrink
// with them. At least one dense layer (where there are any), two MoE layers and 2048 tokens remain. Widths
// are multiples of 64 and experts divisible by the groups. The model itself, with its name, when it is small
// enough; else a model without one. Equal arguments give equal models, more parameters wanted never fewer.
// Throws ValueError below what the structure needs at least: less than a million for any registry entry, 1.2
// million for the largest with an MTP layer. Cost: some ten milliseconds.
Model scaled_down(const Model& model, int64_t num_parameters);

}  // namespace milepost::flavor
