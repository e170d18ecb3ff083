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
    facts.is_complete = true;
    facts.is_ours = is_own(*checkpoint);
  } catch (const Error&) {
    facts.is_complete = false;
  }
  return facts;
}

std::vector<int64_t> steps_to_remove(std::span<const StepFacts> steps, const config::Checkpoint& options) {
  std::vector<StepFacts> complete;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(complete),
               [](const StepFacts& step) { return step.is_complete; });
  std::sort(complete.begin(), complete.end(),
            [](const StepFacts& a, const StepFacts& b) { return a.number < b.number; });
  std::vector<int64_t> removed;
  if (options.keep_latest_k == 0) return removed;
  for (int64_t i = 0; i < std::ssize(complete) - options.keep_latest_k; ++i) {
    const StepFacts& step = complete[static_cast<size_t>(i)];
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

void StepRemover::look_again() {
  const std::lock_guard lock(mutex_);
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
    lock.unlock();
    try {
      remove_old();
    } catch (const std::exception& error) {
      log_(true, fmt::format("Older checkpoints in {} were not looked for: {}", folder_.path, error.what()));
    }
    lock.lock();
  }
}

void StepRemover::remove_old() const {
  std::vector<StepFacts> steps;
  for (const int64_t number : list_steps(folder_)) steps.push_back(look_at_step(folder_, number));
  for (const int64_t step : steps_to_remove(steps, options_)) remove(step);
}

void StepRemover::remove(int64_t step) const {
  const std::string path = step_path(folder_.path, step);
  try {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    log_(false, fmt::format("Checkpointer is deleting {}.", path));
    const int64_t bytes = bytes_in(*folder_.storage, path);
    StagedOutput::remove(folder_.storage, path);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    log_(false, fmt::format("Checkpointer deleted {} in {:.2f} seconds.", path, seconds));
    if (events_ != nullptr) events_->add({CheckpointEvent::Kind::kRemoved, step, bytes, seconds});
  } catch (const std::exception& error) {
    log_(true, fmt::format("Checkpointer failed to delete {}: {}. Skipping.", path, error.what()));
  }
}

}  // namespace milepost::manager
