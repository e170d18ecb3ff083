#include "train/numerics/reference_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "train/models/loss.h"
#include "train/optim/optimizer.h"

namespace milepost::train {
namespace {

using Json = nlohmann::ordered_json;

double length_of(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

Json list(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  const double* data = wide.const_data_ptr<double>();
  return std::vector<double>(data, data + wide.numel());
}

// Smallest gap between the last chosen and the first rejected expert or group, over all tokens.
double least_margin(const at::Tensor& scores_TE, const Parameter* bias_E, const flavor::DeepSeekV3& dims) {
  at::Tensor choice = scores_TE.to(at::kFloat);
  if (bias_E != nullptr) choice = choice + bias_E->local;
  double margin = std::numeric_limits<double>::infinity();
  const auto gap = [&margin](const at::Tensor& values, int64_t kept) {
    if (kept >= values.size(-1)) return;
    const at::Tensor sorted = std::get<0>(values.sort(-1, true));
    const at::Tensor gaps = sorted.select(-1, kept - 1) - sorted.select(-1, kept);
    margin = std::min(margin, gaps.min().item<double>());
  };
  if (dims.num_expert_groups > 0) {
    const at::Tensor grouped = choice.unflatten(-1, {dims.num_expert_groups, -1});
    const at::Tensor group_scores = std::get<0>(grouped.topk(2, -1)).sum(-1);
    gap(group_scores, dims.num_limited_groups);
    const at::Tensor best = std::get<1>(group_scores.topk(dims.num_limited_groups, -1));
    const at::Tensor outside = at::ones_like(group_scores, at::kBool).scatter_(-1, best, false);
    choice = grouped.masked_fill(outside.unsqueeze(-1), -std::numeric_limits<double>::infinity()).flatten(-2);
  }
  gap(choice, dims.top_k);
  return margin;
}

class Run {
 public:
  Run(const Fixture& fixture, const Expected& expected) : fixture_(fixture), expected_(expected) {
    config::Model model = fixture.trainer.model;
    model.options.fp32_experts = expected.fp32_experts;
    const config::Training& training = fixture.trainer.training;
    model_ =
        build_model(model, {.seq_len = training.seq_len, .global_batch_size = training.global_batch_size});
    model_->allocate(at::kFloat, at::kCPU);
    model_->initialize();
    load_weights(fixture.weights, *model_);
    loads_ = model_->expert_loads();
    execution_ = make_local_execution(
        training.mixed_precision_param == "bfloat16" ? at::kBFloat16 : at::kFloat, config::NoAc{});
    model_->observe([this](const std::string& name, const at::Tensor& value) { see(name, value); });
  }

  Recorded record() {
    evaluate();
    keeps_tensors_ = false;
    train();
    return std::move(recorded_);
  }

 private:
  void see(const std::string& name, const at::Tensor& value) {
    if (keeps_tensors_) recorded_.tensors[name] = value.to(at::kCPU);
    for (const ExpertLoad* load : loads_) {
      if (name != "router." + load->block + ".scores") continue;
      const auto& dims = std::get<flavor::DeepSeekV3>(fixture_.trainer.model.architecture.dims);
      const double margin = least_margin(value, load->bias_E, dims);
      const auto [at, is_new] = margins_.emplace(load->block, margin);
      if (!is_new) at->second = std::min(at->second, margin);
    }
  }

  void evaluate() {
    const at::NoGradGuard no_grad;
    const Batch& batch = fixture_.batches[0];
    const std::vector<at::Tensor> hidden = model_->hidden(batch, *execution_, false);
    for (size_t i = 0; i < hidden.size(); ++i) {
      const auto head = [this](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{model_->logits(in[0])};
      };
      const std::string name = i == 0 ? "logits" : fmt::format("mtp_logits.{}", i - 1);
      recorded_.tensors[name] = model_->run_head(*execution_, {hidden[i]}, head)[0].to(at::kFloat);
    }
    order_experts();
    const auto valid = batch.labels_BL.ne(-100).sum().item<int64_t>();
    const double sum =
        loss(config::CrossEntropyLoss{}, *model_, *execution_, {hidden[0]}, batch, 1).item<double>();
    Json& forward = recorded_.values["forward"];
    forward = {{"loss_sum", sum}, {"valid_tokens", valid}, {"loss_mean", sum / static_cast<double>(valid)}};
    forward["router_min_margin"] = Json(margins_);
    if (hidden.size() > 1) {
      const double total =
          loss(fixture_.trainer.loss, *model_, *execution_, hidden, batch, valid).item<double>();
      forward["loss_with_mtp"] = total;
      forward["mtp_loss"] = (total - sum / static_cast<double>(valid)) /
                            std::get<config::MtpLoss>(fixture_.trainer.loss).mtp_scale;
    }
  }

  // A token's experts in ascending order, weights with them.
  void order_experts() {
    for (const ExpertLoad* load : loads_) {
      const std::string router = "router." + load->block;
      const auto [ids, order] = recorded_.tensors.at(router + ".expert_ids").sort(-1);
      recorded_.tensors[router + ".expert_ids"] = ids;
      at::Tensor& weights = recorded_.tensors.at(router + ".weights");
      weights = weights.gather(-1, order);
    }
  }

  void train() {
    const config::Trainer& trainer = fixture_.trainer;
    Optimizer optimizer(model_->parameters(), trainer.optimizer);
    LrScheduler scheduler(LrSchedule(trainer.lr_scheduler, trainer.training.steps), optimizer);
    Json steps = Json::array();
    for (int64_t step = 1; step <= trainer.training.steps; ++step) {
      steps.push_back(one_step(step, optimizer));
      scheduler.step();
    }
    for (const auto& [curve, field] :
         {std::pair{"lr_used", "lr"}, {"loss_curve", "loss"}, {"grad_norm_curve", "grad_norm"}}) {
      Json values = Json::array();
      for (const Json& step : steps) values.push_back(step[field].is_array() ? step[field][0] : step[field]);
      recorded_.values[curve] = std::move(values);
    }
    recorded_.values["steps"] = std::move(steps);
  }

  Json one_step(int64_t step, Optimizer& optimizer) {
    const config::Trainer& trainer = fixture_.trainer;
    margins_.clear();
    optimizer.zero_grad();
    Json record;
    const double total = accumulate();
    record["tokens_per_expert"] = Json::object();
    for (const ExpertLoad* load : loads_) {
      record["tokens_per_expert"][load->block] = list(load->tokens_E->local);
    }
    if (wants(step, "param_grad_norms")) record["param_grad_norms"] = norms(true);
    keep_tensors(fmt::format("grad{}.", step), true);
    record["step"] = step;
    record["loss"] = total;
    record["grad_norm"] = clip_gradients(model_->parameters(), trainer.training.max_norm.value);
    record["ntokens_seen"] = ntokens_seen_;
    record["lr"] = Json::array();
    for (const ParameterGroup& group : optimizer.groups()) record["lr"].push_back(group.lr);
    if (const auto coeff = trainer.model.options.load_balance_coeff) update_expert_biases(loads_, *coeff);
    optimizer.step();
    if (!loads_.empty()) note_routing(&record);
    if (wants(step, "param_norms_after")) record["param_norms_after"] = norms(false);
    keep_tensors(fmt::format("param{}.", step), false);
    return record;
  }

  // Gradients of a step's micro-batches; their loss.
  double accumulate() {
    const config::Training& training = fixture_.trainer.training;
    const int64_t micro_batches = training.global_batch_size / training.local_batch_size;
    std::vector<const Batch*> batches;
    int64_t valid = 0;
    for (int64_t i = 0; i < micro_batches; ++i) {
      batches.push_back(&fixture_.batches[next_batch_++ % fixture_.batches.size()]);
      valid += batches.back()->labels_BL.ne(-100).sum().item<int64_t>();
    }
    double total = 0;
    for (const Batch* batch : batches) {
      const std::vector<at::Tensor> hidden = model_->hidden(*batch, *execution_, true);
      const at::Tensor value = loss(fixture_.trainer.loss, *model_, *execution_, hidden, *batch, valid);
      value.backward();
      total += value.item<double>();
      ntokens_seen_ += batch->labels_BL.numel();
    }
    return total;
  }

  void note_routing(Json* record) const {
    Json& biases = (*record)["expert_bias"] = Json::object();
    for (const ExpertLoad* load : loads_) {
      if (load->bias_E != nullptr) biases[load->block] = list(load->bias_E->local);
    }
    double margin = std::numeric_limits<double>::infinity();
    for (const auto& [block, least] : margins_) margin = std::min(margin, least);
    (*record)["router_min_margin"] = margin;
  }

  bool wants(int64_t step, const char* field) const {
    const auto steps = expected_.values.find("steps");
    const auto index = static_cast<size_t>(step - 1);
    return steps != expected_.values.end() && index < steps->size() && (*steps)[index].contains(field);
  }

  // visit(name, value) for every trainable parameter, or its gradient, under its own name and those of its
  // parts.
  template <typename Visit>
  void visit(bool gradients, const Visit& see_value) const {
    for (const Parameter* parameter : model_->parameters()) {
      if (!parameter->trainable) continue;
      const at::Tensor value = gradients ? parameter->local.grad() : parameter->local.detach();
      if (!value.defined()) continue;
      see_value(parameter->name, value);
      for (const SavedPart& part : parameter->parts)
        see_value(part.name, part_view(value, part).flatten(0, 1));
    }
  }

  Json norms(bool gradients) const {
    Json all = Json::object();
    visit(gradients,
          [&all](const std::string& name, const at::Tensor& value) { all[name] = length_of(value); });
    return all;
  }

  void keep_tensors(const std::string& prefix, bool gradients) {
    visit(gradients, [&](const std::string& name, const at::Tensor& value) {
      if (expected_.tensors.contains(prefix + name)) recorded_.tensors[prefix + name] = value.clone();
    });
  }

  const Fixture& fixture_;
  const Expected& expected_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Execution> execution_;
  std::vector<ExpertLoad*> loads_;
  std::map<std::string, double> margins_;
  bool keeps_tensors_ = true;
  size_t next_batch_ = 0;
  int64_t ntokens_seen_ = 0;
  Recorded recorded_;
};

}  // namespace

Recorded run_fixture(const Fixture& fixture, const Expected& expected) {
  return Run(fixture, expected).record();
}

}  // namespace milepost::train
