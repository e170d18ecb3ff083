#include "milepost/manager/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "milepost/base/error.h"
#include "milepost/manager/pins.h"
#include "milepost/manager/policy.h"
#include "milepost/manager/steps.h"
#include "milepost/storage/staging.h"

namespace milepost::manager {
namespace {

int64_t bytes_in(Storage& storage, const std::string& folder) {
  int64_t bytes = 0;
  for (const FileInfo& file : storage.list(folder)) bytes += file.size_bytes;
  return bytes;
}

}  // namespace

StepFacts look_at_step(const StorageLocation& folder, int64_t number) {
  StepFacts facts;
  facts.number = number;
  const StorageLocation step{folder.storage, step_path(folder.path, number)};
  try {
    facts.is_pinned = is_pinned(step);
    const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(step);
    require_complete(*checkpoint);
    facts.is_ours = is_own(*checkpoint);
    const std::vector<std::string> parts(std::begin(kStateParts), std::end(kStateParts));
    facts.is_full = facts.is_ours || classify_step(folder, number, parts).kind == Step::Kind::kFull;
  } catch (const Error&) {
    facts.is_full = false;
  }
  return facts;
}

std::vector<int64_t> steps_to_remove(std::span<const StepFacts> steps, const RunSteps& run,
                                     const config::Checkpoint& options) {
  std::vector<StepFacts> counted;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(counted),
               [&](const StepFacts& step) { return step.is_full && run.includes(step.number); });
  std::sort(counted.begin(), counted.end(),
            [](const StepFacts& a, const StepFacts& b) { return a.number < b.number; });
  std::vector<int64_t> removed;
  if (options.keep_latest_k == 0) return removed;
  for (int64_t i = 0; i < std::ssize(counted) - options.keep_latest_k; ++i) {
    const StepFacts& step = counted[static_cast<size_t>(i)];
    const bool is_kept = options.keep_every != 0 && step.number % options.keep_every == 0;
    if (step.is_ours && !step.is_pinned && !is_kept) removed.push_back(step.number);
  }
  return removed;
}

StepRemover::StepRemover(StorageLocation folder, const config::Checkpoint& options, Log log, EventLog* events)
    : folder_(std::move(folder)), options_(options), log_(std::move(log)), events_(events) {
  if (options_.keep_latest_k > 0) thread_ = std::thread([this] { run(); });
}

StepRemover::~StepRemover() { close(); }

void StepRemover::begin_with(int64_t step) {
  const std::lock_guard lock(mutex_);
  steps_ = {step, {}};
}

void StepRemover::look_again(int64_t step) {
  const std::lock_guard lock(mutex_);
  steps_.published.insert(step);
  is_asked_ = true;
  changed_.notify_one();
}

void StepRemover::close() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void StepRemover::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_asked_ || is_closing_; });
    if (!is_asked_) return;
    is_asked_ = false;
    const RunSteps steps = steps_;
    lock.unlock();
    try {
      remove_old(steps);
    } catch (const std::exception& error) {
      log_(true, fmt::format("Older checkpoints in {} were not looked for: {}", folder_.path, error.what()));
    }
    lock.lock();
  }
}

void StepRemover::remove_old(const RunSteps& steps) {
  std::vector<StepFacts> facts;
  for (const int64_t number : list_steps(folder_)) {
    if (steps.includes(number)) facts.push_back(look_at_step(folder_, number));
  }
  for (const int64_t step : steps_to_remove(facts, steps, options_)) {
    if (!given_up_.contains(step)) remove(step);
  }
}

void StepRemover::remove(int64_t step) {
  const std::string path = step_path(folder_.path, step);
  try {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    log_(false, fmt::format("Checkpointer is deleting {}.", path));
    const int64_t bytes = bytes_in(*folder_.storage, path);
    if (const std::optional<std::string> stranger = StagedOutput::remove(folder_.storage, path)) {
      keep(step, *stranger);
      return;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    log_(false, fmt::format("Checkpointer deleted {} in {:.2f} seconds.", path, seconds));
    if (events_ != nullptr) events_->add({CheckpointEvent::Kind::kRemoved, step, bytes, seconds});
  } catch (const std::exception& error) {
    log_(true, fmt::format("Checkpointer failed to delete {}: {}. Skipping.", path, error.what()));
  }
}

// The step holds `stranger`: it was pinned meanwhile, or is somebody's place for more than a checkpoint.
void StepRemover::keep(int64_t step, std::string_view stranger) {
  const std::string path = step_path(folder_.path, step);
  if (stranger == kPinName) {
    log_(false, fmt::format("{} has been pinned: it stays.", path));
    return;
  }
  given_up_.insert(step);
  log_(true, fmt::format("Checkpointer failed to delete {}: it holds '{}', which is no part of a checkpoint. "
                         "Skipping.",
                         path, printable(stranger)));
}

}  // namespace milepost::manager
