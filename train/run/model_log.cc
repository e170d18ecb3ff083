#include "train/run/model_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace milepost::train {
namespace {

bool is_mixture(const ModelSize& size) { return size.num_sparse > 0; }

// A number as Python writes it.
std::string python_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == text.npos) text += ".0";
  return text;
}

const char* python_bool(bool value) { return value ? "True" : "False"; }

}  // namespace

std::string model_title(const config::Model& model) {
  const std::string& flavor = model.architecture.name;
  return fmt::format("{} {}", model.architecture.model(), flavor.empty() ? "custom" : flavor);
}

std::vector<std::string> size_lines(const config::Model& model, const ModelSize& size, const Colors& c) {
  std::vector<std::string> lines;
  if (is_mixture(size)) {
    lines.push_back(fmt::format("Total parameter count: dense {}, sparse {}, vision 0, active {}",
                                with_commas(size.num_dense), with_commas(size.num_sparse),
                                with_commas(size.num_active)));
  }
  lines.push_back(fmt::format("{}Model {} {}size: {} total parameters{}", c.blue, model_title(model), c.red,
                              with_commas(size.num_parameters), c.reset));
  return lines;
}

std::vector<std::string> optimizer_lines(Optimizer& optimizer) {
  const auto& implementation = optimizer.options().implementation;
  const bool is_fused = implementation == "fused" || implementation == "fused_opt_states_bf16";
  std::vector<std::string> lines;
  for (const ParameterGroup& group : optimizer.groups()) {
    const config::OptimizerKwargs& kwargs = group.options.optimizer_kwargs;
    lines.push_back(fmt::format(
        "Optimizer {} (model_part=0): {} params [{}] {{'fused': {}, 'foreach': {}, 'lr': {}, 'betas': ({}, "
        "{}), "
        "'eps': {}, 'weight_decay': {}}}",
        group.options.optimizer_name, group.parameters.size(), group.options.pattern, python_bool(is_fused),
        python_bool(implementation == "foreach"), python_number(kwargs.lr), python_number(kwargs.betas[0]),
        python_number(kwargs.betas[1]), python_number(kwargs.eps), python_number(kwargs.weight_decay)));
  }
  return lines;
}

std::vector<std::string> override_lines(const config::OverrideImports& imports) {
  std::vector<std::string> lines;
  for (const config::OverrideImport& import : imports) {
    lines.push_back(fmt::format(
        "Override {}: the fused form is in use; names and results of the model are the same", import.target));
  }
  return lines;
}

std::vector<std::pair<std::string, double>> learning_rates(Optimizer& optimizer) {
  std::vector<std::pair<std::string, double>> rates;
  const auto& groups = optimizer.groups();
  for (const ParameterGroup& group : groups) {
    std::string name = "lr/" + group.options.optimizer_name;
    const auto same = std::count_if(groups.begin(), groups.end(), [&](const ParameterGroup& other) {
      return other.options.optimizer_name == group.options.optimizer_name;
    });
    if (same > 1) {
      const auto before = std::count_if(rates.begin(), rates.end(),
                                        [&](const auto& rate) { return rate.first.starts_with(name + "/"); });
      name += fmt::format("/{}", before);
    }
    rates.emplace_back(name, group.lr);
  }
  return rates;
}

at::ScalarType dtype_of(std::string_view name) { return name == "bfloat16" ? at::kBFloat16 : at::kFloat; }

}  // namespace milepost::train
