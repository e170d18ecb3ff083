#include "milepost/config/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/python_text.h"
#include "config/registry_tables.h"

namespace milepost::config {
namespace {

constexpr std::string_view kPrefixes[] = {"torchtitan.models.", "torchtitan_npu.models."};
constexpr std::string_view kSuffix = ".config_registry";

constexpr PlannedEntry kPlanned[] = {
    {"deepseek_v3_2", "deepseek_v3_2_debugmodel"},
    {"deepseek_v4", "deepseek_v4_debugmodel"},
    {"deepseek_v4", "deepseek_v4_flash"},
    {"deepseek_v4", "deepseek_v4_flash_43layers_16experts"},
    {"deepseek_v4", "deepseek_v4_pro"},
    {"deepseek_v4", "deepseek_v4_pro_61layers_32experts"},
};

// The short name, and the registry's full name for messages.
struct ModuleName {
  std::string short_name, registry;
};

ModuleName parse_module(std::string_view module) {
  std::string_view name = module;
  std::string_view used_prefix = kPrefixes[0];
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  for (std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    used_prefix = prefix;
    break;
  }
  return {std::string(name), fmt::format("{}{}{}", used_prefix, name, kSuffix)};
}

std::string python_list(const std::vector<std::string_view>& names) {
  std::vector<std::string> quoted;
  for (std::string_view name : names) quoted.push_back(string_repr(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

// Sorted, as Python's dir() lists them.
std::vector<std::string_view> names_in(std::string_view module) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries()) {
    if (entry.module == module) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void explain_extra(const std::string& extra, std::vector<std::string>* missing) {
  if (extra == "chat_loader") {
    missing->push_back("a loader of chats, for fine-tuning; this version reads plain text only");
  } else if (extra == "dist_gemm") {
    missing->push_back("matrix products that overlap communication, on several GPUs with symmetric memory");
  } else {
    missing->push_back(
        fmt::format("{}: quantised training kernels (TorchTitan takes them from torchao, on GPUs)",
                    printable(extra, 60)));
  }
}

}  // namespace

std::span<const Entry> entries() {
  static const std::vector<Entry> kAll = [] {
    std::vector<Entry> all(deepseek_v3_entries().begin(), deepseek_v3_entries().end());
    all.insert(all.end(), llama3_entries().begin(), llama3_entries().end());
    return all;
  }();
  return kAll;
}

std::span<const PlannedEntry> planned_entries() { return kPlanned; }

Optimizer adamw(double lr) {
  Optimizer optimizer;
  optimizer.param_groups.resize(1);
  optimizer.param_groups[0].optimizer_kwargs.lr = lr;
  return optimizer;
}

int64_t vocab_size(const Trainer& trainer) {
  return std::visit([](const auto& dims) { return dims.vocab_size; }, trainer.model.architecture.dims);
}

void set_model(std::string_view model, std::string_view flavor, Trainer* trainer) {
  trainer->model.architecture = flavor::find(model, flavor);
  ChunkedLoss loss;
  loss.loss_fn.global_vocab_size = vocab_size(*trainer);
  trainer->loss = loss;
}

const Entry& find_entry(std::string_view module, std::string_view name) {
  const ModuleName wanted = parse_module(module);
  bool module_exists = false;
  for (const Entry& entry : entries()) {
    if (entry.module != wanted.short_name) continue;
    module_exists = true;
    if (entry.name == name) return entry;
  }
  for (const PlannedEntry& planned : planned_entries()) {
    if (planned.module != wanted.short_name) continue;
    throw LaunchError("ImportError",
                      fmt::format("Cannot import {}: this version of Milepost does not train {} yet. It "
                                  "trains deepseek_v3 and llama3.",
                                  wanted.registry, planned.module));
  }
  if (!module_exists) {
    throw LaunchError("ImportError", fmt::format("Cannot import module '{0}' or '{0}.config_registry'. For "
                                                 "shorthands, supported modules are: {1}",
                                                 printable(module), python_list({"deepseek_v3", "llama3"})));
  }
  throw LaunchError(
      "ValueError",
      fmt::format("Config function {} not found in {}. Available config functions: {}", string_repr(name),
                  wanted.registry, python_list(names_in(wanted.short_name))));
}

Trainer make(std::string_view module, std::string_view name) { return find_entry(module, name).make(); }

std::vector<std::string> missing_for_build(const Trainer& trainer) {
  std::vector<std::string> missing;
  const ModelOptions& options = trainer.model.options;
  for (const std::string& extra : options.extras) explain_extra(extra, &missing);
  if (options.moe_comm_backend == "hybridep") {
    missing.push_back("HybridEP, a library for NVIDIA GPUs, and expert parallelism (a degree above 1)");
  } else if (options.moe_comm_backend != "all_to_all") {
    missing.push_back(fmt::format("the {} kernels, for NVIDIA GPUs", options.moe_comm_backend.text()));
  }
  if (trainer.comm.mode == "torchcomms") missing.push_back("comm.mode torchcomms: the torchcomms library");
  return missing;
}

}  // namespace milepost::config
