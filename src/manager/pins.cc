#include "milepost/manager/pins.h"

#include <algorithm>

#include "milepost/base/error.h"
#include "milepost/manager/policy.h"
#include "milepost/manager/steps.h"

namespace milepost::manager {
namespace {

void require_step(const StorageLocation& step) {
  const std::optional<int64_t> number = step_number(base_name(step.path));
  const std::vector<int64_t> steps = list_steps({step.storage, parent_path(step.path)});
  if (number && std::find(steps.begin(), steps.end(), *number) != steps.end()) return;
  ValueError error("this is no step of a run: a folder named step-N that holds a checkpoint",
                   "name a step's folder, such as outputs/checkpoint/step-1000");
  error.set_path(step.path);
  throw error;
}

}  // namespace

bool is_pinned(const StorageLocation& step) {
  return step.storage->stat(join_path(step.path, kPinName)).has_value();
}

bool set_pin(const StorageLocation& step, bool pinned) {
  require_step(step);
  if (is_pinned(step) == pinned) return false;
  const std::string pin = join_path(step.path, kPinName);
  if (pinned) {
    step.storage->make_directory(pin);
  } else {
    step.storage->remove_tree(pin);
  }
  step.storage->sync_directory(step.path);
  return true;
}

std::vector<int64_t> pinned_steps(const StorageLocation& folder) {
  std::vector<int64_t> steps = list_steps(folder);
  std::erase_if(steps, [&](int64_t step) {
    return !is_pinned({folder.storage, step_path(folder.path, step)});
  });
  return steps;
}

}  // namespace milepost::manager
