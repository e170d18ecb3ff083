// A job small enough for a test to take many steps and look at every value.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/state/job.h"
#include "train/torch.h"

namespace milepost::train {

// A parameter, a fused one of two periods, a buffer, and one that is never saved.
class TinyModel final : public Model {
 public:
  explicit TinyModel(int64_t width = 3) {
    name(weight_, "layers.0.w", {4, width});
    name(fused_, "qkv.wqkv", {8, width});
    fused_.parts = {{"qkv.wq", 4, 0, 2}, {"qkv.wk", 4, 2, 1}, {"qkv.wv", 4, 3, 1}};
    name(bias_, "layers.0.expert_bias_E", {2});
    name(counts_, "layers.0.tokens_per_expert_E", {2});
    bias_.trainable = counts_.trainable = counts_.saved = false;
    weight_.tied_name = "lm_head.weight";
    parameters_ = {&weight_, &fused_, &bias_, &counts_};
    allocate(at::kFloat, at::kCPU);
    const at::NoGradGuard no_grad;
    for (Parameter* parameter : parameters_) parameter->local.normal_();
  }
  std::vector<at::Tensor> hidden(const milepost::train::Batch&, Execution&, bool) override { return {}; }
  at::Tensor logits(const at::Tensor& hidden) override { return hidden; }
  const Block& head() const override { return head_; }

  Parameter weight_, fused_, bias_, counts_;
  Block head_;

 private:
  static void name(Parameter& parameter, const char* text, std::vector<int64_t> shape) {
    parameter.name = text;
    parameter.shape = std::move(shape);
  }
};

inline config::Optimizer one_group() {
  config::Optimizer options;
  options.param_groups.resize(1);
  return options;
}

inline config::Optimizer two_groups() {
  config::Optimizer options;
  options.param_groups.resize(2);
  options.param_groups[0].pattern = "qkv";
  options.param_groups[0].optimizer_kwargs.weight_decay = 0;
  return options;
}

inline config::LrScheduler warmup() {
  config::LrScheduler options;
  options.warmup_steps = 4;
  return options;
}

// A job that takes steps on gradients drawn from the default generator.
struct TinyJob {
  explicit TinyJob(int64_t width = 3) : model(width) {}
  TinyModel model;
  Optimizer optimizer{model.parameters(), two_groups()};
  LrScheduler scheduler{LrSchedule(warmup(), 100), optimizer};
  TrainState train;
  Job job{&model, &optimizer, &scheduler, nullptr, &train};

  void step() {
    for (Parameter* parameter : model.parameters()) {
      if (parameter->trainable) parameter->local.mutable_grad() = at::randn(parameter->local.sizes());
    }
    optimizer.step();
    scheduler.step();
    ++train.step;
    train.ntokens_seen += 128;
  }

  std::map<std::string, at::Tensor> tensors() {
    std::map<std::string, at::Tensor> out;
    for (Parameter* parameter : model.parameters()) {
      if (parameter->saved) out[parameter->name] = parameter->local.detach().clone();
    }
    for (ParameterGroup& group : optimizer.groups()) {
      for (size_t i = 0; i < group.moments.size(); ++i) {
        const std::string& name = group.parameters[i]->name;
        if (!group.moments[i].step.defined()) continue;
        out[name + " step"] = group.moments[i].step.clone();
        out[name + " exp_avg"] = group.moments[i].exp_avg.clone();
        out[name + " exp_avg_sq"] = group.moments[i].exp_avg_sq.clone();
      }
    }
    return out;
  }
};

inline void expect_equal(const std::map<std::string, at::Tensor>& a,
                         const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

}  // namespace milepost::train
