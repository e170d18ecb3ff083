#include "milepost/manager/policy.h"

#include <fmt/format.h>

#include "milepost/base/error.h"
#include "milepost/storage/storage.h"

namespace milepost::manager {
namespace {

bool is_remote(std::string_view path) { return path.find("://") != path.npos; }

[[noreturn]] void refuse(std::string_view option, std::string_view why, std::string_view hint) {
  ValueError error(fmt::format("{} {}", option, why), std::string(hint), ErrorCode::kUnsupported);
  throw error;
}

void add_ema_messages(const config::Trainer& config, std::vector<Message>* messages) {
  if (!config.checkpoint.enable) {
    messages->push_back(
        {true, "ema_weights: the moving average is not saved, since checkpoint.enable is off"});
  } else if (config.checkpoint.last_save_model_only && !config.checkpoint.load_only) {
    messages->push_back({true,
                         "ema_weights: the last checkpoint will not hold the moving average, since "
                         "checkpoint.last_save_model_only is on"});
  }
  if (config.training.dtype != "float32") {
    messages->push_back(
        {true, fmt::format("ema_weights: the moving average is kept in {}, as the weights are; "
                           "small changes of it are lost",
                           config.training.dtype.text())});
  }
}

// What is asked for in vain where checkpoints are off.
void add_ignored(const config::Checkpoint& options, std::vector<Message>* messages) {
  const std::pair<const char*, bool> asked[] = {{"load_step", options.load_step >= 0},
                                                {"initial_load_path", options.initial_load_path.has_value()},
                                                {"initial_load_in_hf", options.initial_load_in_hf},
                                                {"load_only", options.load_only}};
  for (const auto& [name, is_asked] : asked) {
    if (!is_asked) continue;
    messages->push_back(
        {true, fmt::format("checkpoint.{} has no effect: checkpoints are off (--checkpoint.enable)", name)});
  }
}

}  // namespace

std::string checkpoint_folder(const config::Trainer& config) {
  std::string folder = config.checkpoint.folder;
  if (!is_remote(folder) && !folder.starts_with('/')) folder = join_path(config.dump_folder, folder);
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

std::string step_path(const std::string& folder, int64_t step) {
  return join_path(folder, fmt::format("step-{}", step));
}

bool should_save(const config::Checkpoint& options, int64_t step, bool last_step) {
  if (!options.enable || options.load_only) return false;
  if (step == 1 && options.enable_first_step_checkpoint) return true;
  return last_step || step % options.interval == 0;
}

std::vector<Message> check_supported(const config::Trainer& config) {
  const config::Checkpoint& options = config.checkpoint;
  std::vector<Message> messages;
  if (config.ema_weights.enable) add_ema_messages(config, &messages);
  if (!options.enable) {
    add_ignored(options, &messages);
    return messages;
  }
  const std::string folder = checkpoint_folder(config);
  if (is_remote(folder)) {
    refuse("checkpoint.folder", fmt::format("is remote ({}), which this version cannot reach", folder),
           "give a folder of a mounted file system");
  }
  return messages;
}

}  // namespace milepost::manager
