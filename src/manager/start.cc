#include "milepost/manager/start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "milepost/engine/ema.h"
#include "milepost/manager/fit.h"

namespace milepost::manager {
namespace {

void require(bool holds, const char* text) {
  if (!holds) throw config::LaunchError("AssertionError", text);
}

constexpr const char* kHowToLeaveOut =
    "to go on without the absent parts, name them with --checkpoint.exclude-from-loading";

// Weights that a new run could start from.
bool has_weights(const Step& step) {
  return step.kind == Step::Kind::kModelOnly || step.kind == Step::Kind::kHuggingFace;
}

// Requires has_weights(step).
std::string how_to_begin_with(const Step& step, const std::string& folder) {
  const bool from_hf = step.kind == Step::Kind::kHuggingFace;
  // The option takes no relative path.
  const std::string path = std::filesystem::absolute(step_path(folder, step.number)).lexically_normal();
  return fmt::format(
      "to start a new run from its weights, give --checkpoint.initial-load-path {}{} and "
      "another --checkpoint.folder",
      path, from_hf ? " --checkpoint.initial-load-in-hf" : "");
}

// The newer steps that are not taken, one line each.
std::vector<Message> explain_passed_over(const Survey& found, const std::string& folder) {
  std::vector<Message> messages;
  for (const Step& step : found.passed_over) {
    std::string text = fmt::format("step-{} is not resumed from: {}", step.number, step.why);
    if (has_weights(step)) text += "; " + how_to_begin_with(step, folder);
    messages.push_back({true, std::move(text)});
  }
  return messages;
}

bool any_is_damaged(const std::vector<Step>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const Step& step) { return step.kind == Step::Kind::kDamaged; });
}

[[noreturn]] void refuse_unresumable(const std::string& folder, const Survey& found) {
  std::string text = "no checkpoint here can be resumed from:";
  for (const Step& step : found.passed_over) text += fmt::format("\n  step-{}: {}", step.number, step.why);
  std::vector<std::string> hints;
  if (!std::all_of(found.passed_over.begin(), found.passed_over.end(), has_weights)) {
    hints.push_back(
        "restore the damaged files from a copy; or, to begin without these steps, remove their folders or "
        "give another one with --checkpoint.folder");
  }
  const auto newest = std::find_if(found.passed_over.begin(), found.passed_over.end(), has_weights);
  if (newest != found.passed_over.end()) {
    hints.push_back(fmt::format("step-{}: {}", newest->number, how_to_begin_with(*newest, folder)));
    if (newest->kind == Step::Kind::kModelOnly) hints.emplace_back(kHowToLeaveOut);
  }
  ValueError error(text, fmt::format("{}", fmt::join(hints, "; ")));
  error.set_path(folder);
  throw error;
}

// The newest first.
std::string steps_text(const std::vector<int64_t>& steps) {
  std::vector<std::string> names;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    names.push_back(fmt::format("step-{}", *step));
  return names_text(names, 20);
}

[[noreturn]] void refuse_partial(const Step& step, const std::string& folder,
                                 const std::vector<int64_t>& there) {
  std::string hint = has_weights(step) ? how_to_begin_with(step, folder) + "; " : "";
  if (step.kind == Step::Kind::kModelOnly) {
    hint += std::string(kHowToLeaveOut) + "; ";
  }
  hint += "to resume another step, name it: there are " + steps_text(there);
  ValueError error(fmt::format("--checkpoint.load_step={} cannot be resumed from: {}", step.number, step.why),
                   hint);
  error.set_path(step_path(folder, step.number));
  throw error;
}

// Whether a run that began anew would do so beside, and in time over, what is worth more than its own start.
// An initial path says that the weights of a finished run are not wanted, not that lost work is not.
bool is_in_the_way(const std::vector<Step>& passed_over, bool has_initial) {
  return has_initial ? any_is_damaged(passed_over) : !passed_over.empty();
}

Start own_step(const config::Checkpoint& options, const std::string& folder, int64_t step) {
  Start start;
  start.source = Start::Source::kOwnStep;
  start.step = step;
  start.path = step_path(folder, step);
  start.model_only = step == 0;
  if (options.initial_load_path) {
    start.messages.push_back({false, fmt::format("checkpoint.initial_load_path {} is ignored, since {} holds "
                                                 "checkpoints of this run",
                                                 *options.initial_load_path, folder)});
  }
  return start;
}

bool has_initial_path(const config::Checkpoint& options) {
  return options.initial_load_path && !options.initial_load_path->empty();
}

Start initial_load(const config::Checkpoint& options, const std::string& hf_assets_path) {
  require(!options.initial_load_in_hf || options.initial_load_model_only,
          "initial_load_in_hf requires initial_load_model_only");
  require(!options.initial_load_in_hf_quantized || options.initial_load_in_hf,
          "initial_load_in_hf_quantized requires initial_load_in_hf");
  Start start;
  start.model_only = options.initial_load_model_only;
  start.from_hf = options.initial_load_in_hf;
  start.quantised = options.initial_load_in_hf_quantized;
  if (has_initial_path(options)) {
    start.source = Start::Source::kInitialPath;
    start.path = *options.initial_load_path;
    if (start.from_hf) {
      start.messages.push_back({false, fmt::format("Loading from HF safetensors from "
                                                   "--checkpoint.initial_load_path: {}",
                                                   start.path)});
    }
  } else if (start.from_hf) {
    require(!hf_assets_path.empty(), "from_hf=True requires sd_adapter and hf_assets_path.");
    start.source = Start::Source::kHfAssets;
    start.path = hf_assets_path;
    start.messages.push_back(
        {false, fmt::format("Loading HF safetensors from --model.hf_assets_path: {}", start.path)});
  } else {
    start.messages.push_back({false, "No checkpoint was provided, this is a fresh start."});
  }
  return start;
}

}  // namespace

std::vector<std::string> parts_to_load(const config::Checkpoint& options) {
  std::vector<std::string> parts;
  for (std::string_view part : kStateParts) {
    if (!is_excluded(options, part)) parts.emplace_back(part);
  }
  return parts;
}

bool is_excluded(const config::Checkpoint& options, std::string_view part) {
  const auto& excluded = options.exclude_from_loading;
  return std::find(excluded.begin(), excluded.end(), part) != excluded.end();
}

void check_excluded(const config::Checkpoint& options) {
  for (const std::string& name : options.exclude_from_loading) {
    const auto* const end = std::end(kStateParts);
    if (name != "model" && name != kEmaPart && std::find(std::begin(kStateParts), end, name) == end) {
      throw ValueError(fmt::format("{} not found in state_dict.", printable(name)),
                       fmt::format("--checkpoint.exclude-from-loading takes {} and {}",
                                   fmt::join(kStateParts, ", "), kEmaPart));
    }
  }
}

Start choose_named_step(const config::Checkpoint& options, const std::string& folder, int64_t number,
                        const NamedStep& found) {
  const std::string path = step_path(folder, number);
  if (!found.folder_exists) {
    throw StorageError(ErrorCode::kNotFound,
                       fmt::format("--checkpoint.load_step={} not found because checkpoint.folder {} does "
                                   "not exist",
                                   number, folder),
                       folder);
  }
  if (!found.step) {
    throw StorageError(
        ErrorCode::kNotFound,
        fmt::format("--checkpoint.load_step={} not found at {}; {}", number, path,
                    found.there.empty() ? "there are no steps" : "there are " + steps_text(found.there)),
        path);
  }
  const Step::Kind kind = found.step->kind;
  if (kind != Step::Kind::kFull && kind != Step::Kind::kDamaged)
    refuse_partial(*found.step, folder, found.there);
  Start start = own_step(options, folder, number);
  if (!found.newer.empty()) {
    start.messages.push_back(
        {true,
         fmt::format("{} stay beside the steps to come: a run without --checkpoint.load-step goes on from "
                     "the newest of all",
                     steps_text(found.newer))});
  }
  return start;
}

Start choose_start(const config::Checkpoint& options, const std::string& folder,
                   const std::string& hf_assets_path, const Survey& found) {
  std::vector<Message> messages = explain_passed_over(found, folder);
  const bool has_initial = has_initial_path(options) || options.initial_load_in_hf;
  if (!found.newest && is_in_the_way(found.passed_over, has_initial)) refuse_unresumable(folder, found);
  Start start =
      found.newest ? own_step(options, folder, found.newest->number) : initial_load(options, hf_assets_path);
  start.messages.insert(start.messages.begin(), messages.begin(), messages.end());
  return start;
}

void require_present(const Start& start) {
  if (start.source == Start::Source::kFresh) return;
  const StorageLocation location = resolve_location(start.path);
  const std::optional<FileInfo> info = location.storage->stat(location.path);
  if (info && info->is_directory) return;
  switch (start.source) {
    case Start::Source::kOwnStep:
      throw StorageError(ErrorCode::kNotFound,
                         fmt::format("--checkpoint.load_step={} not found at {}", start.step, start.path),
                         start.path);
    case Start::Source::kInitialPath:
      throw ValueError(fmt::format("Checkpoint.initial_load_path is invalid: {}", start.path),
                       "there is no such folder: give that of one step, or of a model");
    case Start::Source::kHfAssets:
      throw ValueError(
          fmt::format("hf_assets_path is no folder that HF safetensors could be loaded from: {}; "
                      "name another with --checkpoint.initial_load_path",
                      start.path));
    case Start::Source::kFresh:
      break;
  }
}

}  // namespace milepost::manager
