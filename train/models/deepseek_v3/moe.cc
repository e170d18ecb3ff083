#include "train/models/deepseek_v3/moe.h"

#include <fmt/format.h>

#include <cmath>

#include "milepost/base/error.h"
#include "train/models/remaking.h"
#include "train/ops/experts.h"
#include "train/ops/linear.h"
#include "train/ops/sequence_balance.h"

namespace milepost::train {
namespace {

using Score = flavor::DeepSeekV3::Score;

Parameter experts(const std::string& name, std::vector<int64_t> shape, const Init& init) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = std::move(shape);
  parameter.init = init;
  return parameter;
}

Parameter buffer(const std::string& name, int64_t size, bool saved) {
  Parameter parameter = experts(name, {size}, Init::zeros());
  parameter.trainable = false;
  parameter.saved = saved;
  return parameter;
}

void check(const flavor::DeepSeekV3& dims) {
  if (dims.top_k < 1 || dims.top_k > dims.num_experts) {
    throw ValueError(
        fmt::format("top_k ({}) must be between 1 and num_experts ({})", dims.top_k, dims.num_experts));
  }
  if (dims.num_expert_groups == 0) return;
  if (dims.num_experts % dims.num_expert_groups != 0) {
    throw ValueError(fmt::format("num_experts ({}) must be divisible by num_expert_groups ({})",
                                 dims.num_experts, dims.num_expert_groups));
  }
  const int64_t group = dims.num_experts / dims.num_expert_groups;
  if (group < 2) {
    throw ValueError(fmt::format("experts_per_group ({}) must be >= 2", group));
  }
  if (dims.num_limited_groups < 1 || dims.num_limited_groups > dims.num_expert_groups ||
      dims.num_limited_groups * group < dims.top_k) {
    throw ValueError(
        fmt::format("num_limited_groups ({}) must be between 1 and num_expert_groups ({}), and hold "
                    "top_k ({}) experts",
                    dims.num_limited_groups, dims.num_expert_groups, dims.top_k));
  }
}

// -inf for experts outside the best groups; a group is as good as its two best experts together.
at::Tensor limit_to_groups(const at::Tensor& choice_TE, const flavor::DeepSeekV3& dims) {
  const at::Tensor grouped = choice_TE.unflatten(-1, {dims.num_expert_groups, -1});
  const at::Tensor group_score = std::get<0>(grouped.topk(2, -1)).sum(-1);
  const at::Tensor best = std::get<1>(group_score.topk(dims.num_limited_groups, -1));
  const at::Tensor outside = at::ones_like(group_score, at::kBool).scatter_(-1, best, false);
  return grouped.masked_fill(outside.unsqueeze(-1), -INFINITY).flatten(-2);
}

// Experts in turn, whatever the scores.
at::Tensor ids_in_turn(const at::Tensor& scores_TE, int64_t top_k) {
  const int64_t tokens = scores_TE.size(0), experts = scores_TE.size(1);
  return at::arange(tokens * top_k, scores_TE.options().dtype(at::kLong))
      .remainder(experts)
      .view({tokens, top_k});
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const std::string& name, const flavor::DeepSeekV3& model_dims,
                                   int64_t layer, const config::ModelOptions& config,
                                   const ModelOptions& options)
    : gate(name + ".moe.router.gate", model_dims.dim, model_dims.num_experts, depth_init(layer)),
      tokens_per_expert_E(buffer(name + ".moe.tokens_per_expert_E", model_dims.num_experts, false)),
      dims(model_dims),
      bf16_experts(!config.fp32_experts),
      force_load_balance(options.force_load_balance) {
  check(dims);
  const int64_t E = dims.num_experts, F = dims.moe_hidden_dim, D = dims.dim;
  const std::string inner = name + ".moe.routed_experts.inner_experts.";
  w1_EFD = experts(inner + "w1_EFD", {E, F, D}, projection_init());
  w2_EDF = experts(inner + "w2_EDF", {E, D, F}, depth_init(layer));
  w3_EFD = experts(inner + "w3_EFD", {E, F, D}, depth_init(layer));
  if (dims.num_shared_experts > 0) {
    shared_experts.emplace(name + ".moe.shared_experts", D, F * dims.num_shared_experts, depth_init(layer));
  }
  if (config.load_balance_coeff) expert_bias_E = buffer(name + ".moe.expert_bias_E", E, true);
}

Routing MixtureOfExperts::route(const at::Tensor& x_TD, int64_t sequences, double balance) const {
  Routing routing;
  const at::Tensor wide_TD = x_TD.to(at::kFloat);
  if (!wide_TD.is_same(x_TD)) {
    can_remake(wide_TD, [x_TD = x_TD.detach()] { return x_TD.to(at::kFloat); });
  }
  const at::Tensor logits_TE = train::linear(wide_TD, gate.weight.compute.to(at::kFloat));
  routing.scores_TE = dims.score_func == Score::kSigmoid ? logits_TE.sigmoid() : logits_TE.softmax(-1);
  {
    const at::NoGradGuard choice_has_no_gradient;
    at::Tensor choice_TE = routing.scores_TE;
    if (expert_bias_E) choice_TE = choice_TE + expert_bias_E->compute;
    if (dims.num_expert_groups > 0) choice_TE = limit_to_groups(choice_TE, dims);
    routing.ids_TK =
        force_load_balance ? ids_in_turn(choice_TE, dims.top_k) : std::get<1>(choice_TE.topk(dims.top_k, -1));
  }
  if (balance != 0) {
    const auto by_sequence = [sequences](const at::Tensor& t) { return t.unflatten(0, {sequences, -1}); };
    const SequenceBalance balanced =
        with_sequence_balance(by_sequence(routing.scores_TE), by_sequence(routing.ids_TK), balance);
    routing.scores_TE = balanced.scores_BLE.flatten(0, 1);
    routing.balance_loss = balanced.loss;
  }
  routing.weights_TK = routing.scores_TE.gather(-1, routing.ids_TK);
  if (dims.route_norm) routing.weights_TK = routing.weights_TK / (routing.weights_TK.sum(-1, true) + 1e-20);
  if (dims.route_scale != 1) routing.weights_TK = routing.weights_TK * dims.route_scale;
  return routing;
}

at::Tensor MixtureOfExperts::operator()(const at::Tensor& x_TD, const Routing& routing) const {
  const at::Tensor routed = routed_experts(x_TD, w1_EFD.compute, w2_EDF.compute, w3_EFD.compute,
                                           routing.ids_TK, routing.weights_TK, bf16_experts);
  return shared_experts ? routed + (*shared_experts)(x_TD) : routed;
}

at::Tensor MixtureOfExperts::count(const Routing& routing) const {
  return count_experts(routing.ids_TK, dims.num_experts).to(at::kFloat);
}

std::vector<Parameter*> MixtureOfExperts::parameters() {
  std::vector<Parameter*> all;
  if (expert_bias_E) all.push_back(&*expert_bias_E);
  all.insert(all.end(), {&tokens_per_expert_E, &w1_EFD, &w2_EDF, &w3_EFD, &gate.weight});
  if (shared_experts) {
    const auto shared = shared_experts->parameters();
    all.insert(all.end(), shared.begin(), shared.end());
  }
  return all;
}

}  // namespace milepost::train
