#include "config/old_keys.h"

#include <fmt/format.h>

#include "milepost/base/error.h"

namespace milepost::config {
namespace {

constexpr OldKey kOldKeys[] = {
    {"job.dump_folder", "dump_folder"},
    {"job.print_config", "debug.print_config"},
    {"job.print_args", "debug.print_config"},
    {"job.save_config_file", "debug.save_config_file"},
    {"job.description", ""},
    {"model.hf_assets_path", "hf_assets_path"},
    {"model.tokenizer_path", "hf_assets_path"},
    {"optimizer.name", "optimizer.param_groups.0.optimizer_name"},
    {"optimizer.lr", "optimizer.param_groups.0.optimizer_kwargs.lr"},
    {"optimizer.eps", "optimizer.param_groups.0.optimizer_kwargs.eps"},
    {"optimizer.weight_decay", "optimizer.param_groups.0.optimizer_kwargs.weight_decay"},
    {"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"},
    {"training.dataset", "dataloader.dataset"},
    {"training.dataset_path", "dataloader.dataset_path"},
    {"training.seed", "debug.seed"},
    {"training.deterministic", "debug.deterministic"},
    {"training.compile", "compile.enable"},
    {"checkpoint.enable_checkpoint", "checkpoint.enable"},
    {"activation_checkpoint.mode", "activation_checkpoint.policy"},
    {"validation.enable", "validator.enable"},
    {"validation.freq", "validator.freq"},
    {"validation.steps", "validator.steps"},
    {"validation.dataset", "validator.dataloader.dataset"},
    {"validation.dataset_path", "validator.dataloader.dataset_path"},
    {"profiling.enable_profiling", "profiler.enable_profiling"},
    {"profiling.save_traces_folder", "profiler.save_traces_folder"},
    {"profiling.profile_freq", "profiler.profile_freq"},
    {"profiling.enable_memory_snapshot", "profiler.enable_memory_snapshot"},
    {"profiling.save_memory_snapshot_folder", "profiler.save_memory_snapshot_folder"},
};

// Takes `section.field` out of the document; a section that is empty then goes, too.
std::optional<Json> take(std::string_view path, Json* document) {
  const size_t dot = path.find('.');
  const std::string section(path.substr(0, dot)), field(path.substr(dot + 1));
  if (!document->contains(section) || !(*document)[section].is_object() ||
      !(*document)[section].contains(field)) {
    return std::nullopt;
  }
  Json value = (*document)[section][field];
  (*document)[section].erase(field);
  if ((*document)[section].empty()) document->erase(section);
  return value;
}

[[noreturn]] void fail(std::string_view path, const std::string& text) {
  FormatError error(ErrorCode::kBadFormat, text);
  error.set_key(path);
  throw error;
}

void put(std::string_view old_path, std::string_view new_path, Json value, Json* document) {
  Json* place = document;
  for (std::string_view rest = new_path; !rest.empty();) {
    const std::string name(rest.substr(0, rest.find('.')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name == "0") {
      if (place->is_null()) *place = Json::array({Json::object()});
      if (!place->is_array() || place->empty())
        fail(old_path, "stands for an entry of a list, and there is none");
      place = &(*place)[0];
    } else {
      if (!place->is_null() && !place->is_object())
        fail(old_path, fmt::format("stands for {}, which is no section", new_path));
      place = &(*place)[name];
    }
  }
  if (!place->is_null()) fail(old_path, fmt::format("is the old name of {}, which is there, too", new_path));
  *place = std::move(value);
}

// Betas were two fields.
void translate_betas(Json* document) {
  const std::optional<Json> beta1 = take("optimizer.beta1", document),
                            beta2 = take("optimizer.beta2", document);
  if (!beta1 && !beta2) return;
  if (!beta1 || !beta2) fail("optimizer.beta1", "give both beta1 and beta2, or neither");
  put("optimizer.beta1", "optimizer.param_groups.0.optimizer_kwargs.betas", Json::array({*beta1, *beta2}),
      document);
}

}  // namespace

std::span<const OldKey> old_keys() { return kOldKeys; }

void translate_old_keys(Json* document) {
  for (const OldKey& key : kOldKeys) {
    std::optional<Json> value = take(key.old_path, document);
    if (!value || key.new_path.empty()) continue;
    if (key.old_path == "activation_checkpoint.mode" && *value == "memory_budget") *value = "memory-budget";
    put(key.old_path, key.new_path, std::move(*value), document);
  }
  translate_betas(document);
}

}  // namespace milepost::config
