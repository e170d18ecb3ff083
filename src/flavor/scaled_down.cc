// Smaller models of the same structure.
//
// 1. A ladder of models is built that does not depend on the size wanted: the model itself; with fewer and
//    fewer layers, down to a quarter of them, since those keep the tensors' real sizes; then with everything
//    shrunk by a common factor, finely stepped, down to the least that the structure allows; then variants of
//    all these with more layers, other feed-forward layers and larger vocabularies, which fill the gaps
//    that the rounding of few or narrow layers leaves.
// 2. A model becomes a rung only where there is none of about its size yet, so that earlier ones are
//    preferred.
// 3. The answer is the rung nearest to the size wanted: more parameters wanted never give fewer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/flavor/flavor.h"

namespace milepost::flavor {
namespace {

constexpr int64_t kWidthMultiple = 64;
constexpr int64_t kMinVocab = 2048;  // of the tokenizers bundled for tests
constexpr int64_t kFewExperts = 8;   // without groups, and where top_k asks for less
constexpr int64_t kRungsApart = 16;  // 1/16th of a rung's size
constexpr double kSmallestScale = 1.0 / 512;
constexpr double kScaleStep = 0.95;

// How much of the model's size a candidate keeps.
struct Shrink {
  double layers = 1;  // of the layers' number
  double all = 1;     // of every width, head, expert and token
  int64_t extra_layers = 0;
  double feed_forward = 1;  // besides `all`
  double vocab = 1;         // besides `all`, also of the least
};

int64_t scaled(int64_t full, double scale, int64_t least) {
  return std::min(full, std::max<int64_t>(least, std::llround(static_cast<double>(full) * scale)));
}

int64_t scaled_width(int64_t full, double scale, int64_t least = kWidthMultiple) {
  const int64_t units = std::llround(static_cast<double>(full) * scale / kWidthMultiple);
  return std::min(full, std::max(least, units * kWidthMultiple));
}

int64_t scaled_layers(int64_t full, const Shrink& shrink) {
  return std::min(full, scaled(full, shrink.layers * shrink.all, 2) + shrink.extra_layers);
}

int64_t scaled_vocab(int64_t full, const Shrink& shrink) {
  const auto vocab = static_cast<double>(scaled_width(full, shrink.all, kMinVocab));
  return std::min(full, round_up(std::llround(vocab * shrink.vocab), kWidthMultiple));
}

int64_t largest_divisor(int64_t number, int64_t at_most) {
  int64_t divisor = std::max<int64_t>(at_most, 1);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// A whole number of heads of the full size where four of them fit.
int64_t scaled_dim(const Llama3& full, double scale) {
  const int64_t dim = scaled_width(full.dim, scale);
  const bool whole_heads = full.head_dim % kWidthMultiple == 0 && dim >= 4 * full.head_dim;
  return whole_heads ? round_down(dim, full.head_dim) : dim;
}

// Four heads or more of an even size, of the full one's size where they fit.
int64_t scaled_head_dim(int64_t full, int64_t dim) {
  int64_t head_dim = full;
  while (head_dim % 2 == 0 && (dim % head_dim != 0 || dim / head_dim < 4)) head_dim /= 2;
  return head_dim % 2 == 0 ? head_dim : 16;
}

Llama3 shrunk(const Llama3& full, const Shrink& shrink) {
  Llama3 m = full;
  m.n_layers = scaled_layers(full.n_layers, shrink);
  m.dim = scaled_dim(full, shrink.all);
  m.hidden_dim = scaled_width(full.hidden_dim, shrink.all * shrink.feed_forward);
  m.vocab_size = scaled_vocab(full.vocab_size, shrink);
  if (m.dim == full.dim) return m;
  m.head_dim = scaled_head_dim(full.head_dim, m.dim);
  m.n_heads = std::min(full.n_heads, m.dim / m.head_dim);
  const int64_t kv_heads =
      scaled(full.n_kv_heads, static_cast<double>(m.n_heads) / static_cast<double>(full.n_heads), 1);
  m.n_kv_heads = full.n_kv_heads == full.n_heads ? m.n_heads : largest_divisor(m.n_heads, kv_heads);
  return m;
}

int64_t scaled_experts(const DeepSeekV3& full, double scale) {
  if (full.num_expert_groups == 0) {
    const int64_t least = std::max(full.top_k, kFewExperts);
    // By fours, so that ranks can share them out.
    return full.num_experts % 4 == 0 ? 4 * scaled(full.num_experts / 4, scale, ceil_div(least, 4))
                                     : scaled(full.num_experts, scale, least);
  }
  // Two in each group, since a group's score is the sum of its best two; and enough in those that are chosen.
  const int64_t least =
      std::max<int64_t>(2, ceil_div(full.top_k, std::max<int64_t>(1, full.num_limited_groups)));
  return full.num_expert_groups * scaled(full.num_experts / full.num_expert_groups, scale, least);
}

DeepSeekV3 shrunk(const DeepSeekV3& full, const Shrink& shrink) {
  DeepSeekV3 m = full;
  m.n_dense_layers = scaled(full.n_dense_layers, shrink.layers * shrink.all, 1);
  m.n_layers = m.n_dense_layers + scaled_layers(full.n_layers - full.n_dense_layers, shrink);
  m.dim = scaled_width(full.dim, shrink.all);
  m.hidden_dim = scaled_width(full.hidden_dim, shrink.all * shrink.feed_forward);
  m.moe_hidden_dim = scaled_width(full.moe_hidden_dim, shrink.all * shrink.feed_forward);
  m.vocab_size = scaled_vocab(full.vocab_size, shrink);
  m.n_heads = scaled(full.n_heads, shrink.all, 2);
  m.q_lora_rank = scaled_width(full.q_lora_rank, shrink.all);
  m.kv_lora_rank = scaled_width(full.kv_lora_rank, shrink.all);
  // Heads stay as they are until the model is small.
  m.qk_nope_head_dim = scaled_width(full.qk_nope_head_dim, 4 * shrink.all);
  m.v_head_dim = scaled_width(full.v_head_dim, 4 * shrink.all);
  m.num_experts = scaled_experts(full, shrink.all);
  return m;
}

class Ladder {
 public:
  explicit Ladder(const Model& full) : full_(&full) { rungs_.emplace(flavor::num_parameters(full), full); }

  void offer(const Shrink& shrink) {
    Model model;
    std::visit([&](const auto& dims) { model.dims = shrunk(dims, shrink); }, full_->dims);
    if (model.dims == full_->dims) return;
    const int64_t size = flavor::num_parameters(model);
    const auto above = rungs_.lower_bound(size);
    if (above != rungs_.end() && above->first - size < size / kRungsApart) return;
    if (above != rungs_.begin() && size - std::prev(above)->first < size / kRungsApart) return;
    rungs_.emplace(size, std::move(model));
  }

  const Model& nearest(int64_t size) const {
    const auto above = rungs_.lower_bound(size);
    if (above == rungs_.end()) return std::prev(above)->second;
    if (above == rungs_.begin()) return above->second;
    const auto below = std::prev(above);
    return size - below->first <= above->first - size ? below->second : above->second;
  }
  int64_t smallest() const { return rungs_.begin()->first; }

 private:
  const Model* full_;
  std::map<int64_t, Model> rungs_;  // by size
};

// Every size of the model, largest first.
std::vector<Shrink> shrinks(int64_t n_layers) {
  std::vector<Shrink> result;
  const int64_t few_layers = std::max<int64_t>(1, ceil_div(n_layers, 4));
  const auto fraction = [&](int64_t layers) {
    return static_cast<double>(layers) / static_cast<double>(n_layers);
  };
  for (int64_t layers = n_layers; layers > few_layers; --layers)
    result.push_back({.layers = fraction(layers)});
  for (double all = 1; all > kSmallestScale; all *= kScaleStep) {
    result.push_back({.layers = fraction(few_layers), .all = all});
  }
  return result;
}

Ladder ladder_of(const Model& model) {
  const int64_t n_layers = std::visit([](const auto& m) { return m.n_layers; }, model.dims);
  const std::vector<Shrink> sizes = shrinks(n_layers);
  Ladder ladder(model);
  for (const double vocab : {1.0, 1.25, 1.5}) {
    for (const double feed_forward : {1.0, 0.75, 1.5}) {
      for (const int64_t extra_layers : {0, 1, 2}) {
        for (Shrink shrink : sizes) {
          shrink.vocab = vocab;
          shrink.feed_forward = feed_forward;
          shrink.extra_layers = extra_layers;
          ladder.offer(shrink);
        }
      }
    }
  }
  return ladder;
}

}  // namespace

Model scaled_down(const Model& model, int64_t num_parameters) {
  if (flavor::num_parameters(model) <= num_parameters) return model;
  const Ladder ladder = ladder_of(model);
  if (num_parameters < ladder.smallest()) {
    throw ValueError(fmt::format("{} cannot be scaled down to {} parameters: its structure needs {}",
                                 model.text(), num_parameters, ladder.smallest()),
                     "ask for a larger model");
  }
  return ladder.nearest(num_parameters);
}

}  // namespace milepost::flavor
