#include "open_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/safetensors.h"

namespace milepost::cli {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr size_t kMaxNamedSteps = 12;

struct Step {
  int64_t number;
  bool complete;
};

bool parse_step(std::string_view name, int64_t* number) {
  if (!name.starts_with(kStepPrefix)) return false;
  const char* end = name.data() + name.size();
  const auto [stop, code] = std::from_chars(name.data() + kStepPrefix.size(), end, *number);
  return code == std::errc() && stop == end && *number >= 0;
}

// The step folders in `folder`, by number.
std::vector<Step> find_steps(Storage& storage, const std::string& folder) {
  std::vector<Step> steps;
  for (const FileInfo& entry : storage.list(folder)) {
    int64_t number = 0;
    if (!entry.is_directory || !parse_step(entry.name, &number)) continue;
    const std::string path = join_path(folder, entry.name);
    const bool complete = storage.stat(join_path(path, dcp::kMetadataName)) ||
                          storage.stat(join_path(path, safetensors::kIndexName));
    steps.push_back({number, complete});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.number < b.number; });
  return steps;
}

std::string steps_text(const std::vector<Step>& steps, bool complete) {
  std::vector<std::string> names;
  for (const Step& step : steps) {
    if (step.complete == complete) names.push_back(fmt::format("step-{}", step.number));
  }
  if (names.empty()) return {};
  const size_t skipped = names.size() > kMaxNamedSteps ? names.size() - kMaxNamedSteps : 0;
  names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(skipped));
  return fmt::format("{}{}{}", complete ? "complete: " : "incomplete: ",
                     skipped > 0 ? fmt::format("{} older ones, ", skipped) : "", fmt::join(names, ", "));
}

std::string steps_text(const std::vector<Step>& steps) {
  const std::string complete = steps_text(steps, true), incomplete = steps_text(steps, false);
  return complete + (complete.empty() || incomplete.empty() ? "" : "; ") + incomplete;
}

// What a person who named `location` may have meant; empty when there is nothing to say.
std::string nearby_steps(const StorageLocation& location) {
  Storage& storage = *location.storage;
  const std::optional<FileInfo> info = storage.stat(location.path);
  if (info && info->is_directory) {
    const std::vector<Step> steps = find_steps(storage, location.path);
    if (!steps.empty()) return "it holds step folders, so name one (" + steps_text(steps) + ")";
  }
  int64_t number = 0;
  const std::string parent = parent_path(location.path);
  if (!info && parse_step(base_name(location.path), &number)) {
    const std::optional<FileInfo> folder = storage.stat(parent);
    if (folder && folder->is_directory) {
      const std::vector<Step> steps = find_steps(storage, parent);
      if (!steps.empty()) return "the steps there: " + steps_text(steps);
    }
  }
  return {};
}

}  // namespace

std::shared_ptr<const Checkpoint> open_path(const std::string& path, int64_t rank) {
  OpenOptions options;
  options.rank = rank;
  try {
    return Checkpoint::open(path, options);
  } catch (const StorageError& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    const std::string steps = nearby_steps(resolve_location(path));
    if (steps.empty()) throw;
    StorageError better(error.code(), error.summary(), error.path(), error.error_number());
    better.set_hint(steps);
    throw better;
  }
}

}  // namespace milepost::cli
