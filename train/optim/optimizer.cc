#include "train/optim/optimizer.h"

#include <fmt/format.h>

#include <regex>
#include <set>

#include "milepost/base/error.h"
#include "train/optim/adam.h"

namespace milepost::train {
namespace {

std::regex compile(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error&) {
    throw ValueError(fmt::format("Optimizer param_groups pattern '{}' is not a regular expression", pattern));
  }
}

at::ScalarType moment_dtype(const config::Optimizer& options, const at::Tensor& parameter) {
  return options.implementation == "fused_opt_states_bf16" ? at::kBFloat16 : parameter.scalar_type();
}

}  // namespace

Optimizer::Optimizer(const std::vector<Parameter*>& parameters, const config::Optimizer& options)
    : options_(options) {
  std::set<const Parameter*> taken;
  for (const config::ParamGroup& group_options : options.param_groups) {
    if (group_options.optimizer_name != "AdamW" && group_options.optimizer_name != "Adam") {
      throw ValueError(fmt::format("Optimizer {} not added.", group_options.optimizer_name));
    }
    ParameterGroup group{group_options, group_options.optimizer_kwargs.lr, {}, {}};
    const std::regex pattern = compile(group_options.pattern);
    for (Parameter* p : parameters) {
      if (!p->trainable || taken.contains(p) || !std::regex_search(p->name, pattern)) continue;
      taken.insert(p);
      group.parameters.push_back(p);
    }
    if (group.parameters.empty()) {
      throw ValueError(
          fmt::format("Optimizer param_groups pattern '{}' matched no parameters", group_options.pattern));
    }
    group.moments.resize(group.parameters.size());
    groups_.push_back(std::move(group));
  }
  for (const Parameter* p : parameters) {
    if (p->trainable && !taken.contains(p)) {
      throw ValueError(fmt::format("No pattern of the optimizer's param_groups takes parameter {}", p->name));
    }
  }
}

void Optimizer::materialize() {
  for (ParameterGroup& group : groups_) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      Moments& moments = group.moments[i];
      if (moments.step.defined()) continue;
      const at::Tensor parameter = group.parameters[i]->local.detach();
      const auto options = parameter.options().dtype(moment_dtype(options_, parameter));
      moments.step = at::zeros({}, at::kFloat);
      moments.exp_avg = at::zeros(parameter.sizes(), options);
      moments.exp_avg_sq = at::zeros(parameter.sizes(), options);
    }
  }
}

void Optimizer::zero_grad() {
  for (ParameterGroup& group : groups_) {
    for (Parameter* p : group.parameters) p->local.mutable_grad() = at::Tensor();
  }
}

void Optimizer::step() {
  const at::NoGradGuard no_grad;
  materialize();
  for (ParameterGroup& group : groups_) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const at::Tensor& parameter = group.parameters[i]->local;
      if (parameter.grad().defined()) adam_step(group, parameter, parameter.grad(), group.moments[i]);
    }
  }
}

}  // namespace milepost::train
