#include "train/state/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>

#include "milepost/base/error.h"
#include "milepost/base/thread_pool.h"
#include "milepost/format/manifest.h"
#include "milepost/manager/background.h"
#include "milepost/manager/events.h"
#include "milepost/manager/pins.h"
#include "milepost/manager/policy.h"
#include "milepost/manager/retention.h"
#include "milepost/manager/staging_buffers.h"
#include "milepost/manager/steps.h"
#include "milepost/storage/directories.h"
#include "train/state/job_save.h"
#include "train/state/job_snapshot.h"
#include "train/state/run_record.h"
#include "train/state/stopwatch.h"
#include "train/state/together.h"

namespace milepost::train {
namespace {

using EventKind = manager::CheckpointEvent::Kind;
using manager::StagingBuffers;

DType export_dtype(const config::Checkpoint& options) {
  if (options.export_dtype == "float16") return DType::kFloat16;
  return options.export_dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32;
}

StagingBuffers::Kind staging_kind(const config::Checkpoint& options) {
  return options.async_mode == "async_with_pinned_mem" ? StagingBuffers::Kind::kLocked
                                                       : StagingBuffers::Kind::kPageable;
}

// The last two are those that no step follows.
enum class Occasion : uint8_t { kInterval, kEarlyEnd, kLastStep };

// A save under way.
struct StepSave {
  int64_t step;
  Occasion occasion;
  Stopwatch asked;
  std::atomic<double> pause{0};  // seconds that training stood still for it, from then on
  Stopwatch began = {};          // once the save before it has ended
};

[[noreturn]] void refuse_to_end_without(const std::string& step) {
  ValueError error("this step is pinned and stays as it is, so that the run's last checkpoint is not saved",
                   "take the pin away (milepost pin PATH --unpin), or give another --checkpoint.folder");
  error.set_path(step);
  throw error;
}

}  // namespace

struct Saver::Parts {
  const config::Trainer& config;
  const Job job;
  const LogLine log_line;
  const config::Checkpoint& options = config.checkpoint;
  const StorageLocation folder = resolve_location(manager::checkpoint_folder(config));
  std::atomic<int64_t> published_step{-1};
  std::atomic<double> longest_save_seconds{0};
  const Together ranks{job.groups};
  const Together background_ranks{job.groups, "checkpoint"};  // of the background's thread while that works
  StagingBuffers staging{staging_kind(options)};
  std::shared_ptr<StepSave> current = {};  // the one that was staged last
  std::exception_ptr lost = {};            // what training went on without, until a later save is published
  // Of the first rank, where steps are saved.
  std::unique_ptr<manager::EventLog> events = {};
  std::unique_ptr<manager::StepRemover> remover = {};
  manager::Background background = {};  // last: its work uses the others

  bool is_async() const { return !(options.async_mode == "disabled"); }
  void log(const std::string& text) const {
    if (log_line) log_line(false, text);
  }
  void warn(const std::string& text) const {
    if (log_line) log_line(true, text);
  }
  void report(EventKind kind, int64_t step, int64_t bytes, double seconds,
              std::optional<double> pause = std::nullopt) const {
    if (events) events->add({kind, step, bytes, seconds, pause});
  }

  void begin_background();
  bool make_room(int64_t step) const;
  bool tolerate(const std::exception& error, const Together& among, bool more_follows);
  bool attempt(const StepSave& save, const std::function<bool()>& work);
  void settle(bool more_follows);
  StorageLocation step_location(int64_t step) const {
    return {folder.storage, manager::step_path(folder.path, step)};
  }
  bool hashes_files() const { return options.extensions.verify_hash_manifest; }
  void tell_of_pin(int64_t step) const;
  void tell_of_replacement(int64_t step) const;
  // Of a save: its bytes; nullopt where the step is pinned.
  std::optional<int64_t> written(int64_t step, const std::optional<SavedFiles>& saved) const;
  std::optional<int64_t> write(int64_t step, const JobSnapshot& state, const Together& among) const;
  JobSnapshot snapshot_of_last(int64_t step) const;
  std::optional<int64_t> write_now(const StepSave& save, const JobSnapshot& state) const;
  void publish(const StepSave& save, int64_t bytes);

  bool leave_out(const StepSave& save) const;
  bool save_now(const std::shared_ptr<StepSave>& save);
  bool stage(const std::shared_ptr<StepSave>& save);
  void write_staged(const std::shared_ptr<StepSave>& save, const JobSnapshot& state);
};

// A failure there is none of the run's.
void Saver::Parts::begin_background() {
  if (job.rank() != 0 || job.optimizer == nullptr || options.load_only) return;
  events = std::make_unique<manager::EventLog>(manager::events_file(config.dump_folder), log_line);
  remover = std::make_unique<manager::StepRemover>(
      folder, options,
      [this](bool is_warning, std::string_view text) {
        if (log_line) log_line(is_warning, text);
      },
      events.get());
}

void Saver::Parts::tell_of_pin(int64_t step) const {
  warn(fmt::format("step-{} is pinned: it stays as it is, and is not saved again", step));
}

// Of a step that is there already, what is lost with it.
void Saver::Parts::tell_of_replacement(int64_t step) const {
  if (!folder.storage->stat(step_location(step).path)) return;
  const std::vector<std::string> parts(std::begin(manager::kStateParts), std::end(manager::kStateParts));
  const manager::Step there = manager::classify_step(folder, step, parts);
  warn(fmt::format("step-{} is there already, and is replaced{}", step,
                   there.why.empty() ? there.why : ": " + there.why));
}

// Makes the folder of steps. False: the step is there and pinned, and must stay as it is.
bool Saver::Parts::make_room(int64_t step) const {
  const std::string pin = ranks.first([&] {
    make_directories(*folder.storage, folder.path);
    if (manager::is_pinned(step_location(step))) return std::string(manager::kPinName);
    tell_of_replacement(step);
    return std::string();
  });
  if (!pin.empty()) tell_of_pin(step);
  return pin.empty();
}

// Within a handler of `error`, which a save of the ranks `among` threw: whether training goes on without it.
// Not where the others may not know of it, or a rank does not answer: they would go on apart.
bool Saver::Parts::tolerate(const std::exception& error, const Together& among, bool more_follows) {
  if (options.on_save_error == "fail" || !among.is_known_to_all(std::current_exception())) return false;
  if (!more_follows) {
    warn(
        "The run fails without its last checkpoint: checkpoint.on_save_error=warn is for those that others "
        "follow");
    return false;
  }
  warn(fmt::format("Training goes on without this checkpoint (checkpoint.on_save_error=warn): {}",
                   error.what()));
  lost = std::current_exception();
  return true;
}

// What all ranks do together; false where it failed and training goes on.
bool Saver::Parts::attempt(const StepSave& save, const std::function<bool()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    if (!tolerate(error, ranks, save.occasion == Occasion::kInterval)) throw;
    return false;
  }
}

// Waits for the save under way. `more_follows`: steps, or another save.
void Saver::Parts::settle(bool more_follows) {
  try {
    background.wait();
  } catch (const std::exception& error) {
    if (!tolerate(error, background_ranks, more_follows)) throw;
  }
}

// Tells of a manifest, or of the pin.
std::optional<int64_t> Saver::Parts::written(int64_t step, const std::optional<SavedFiles>& saved) const {
  if (!saved) {
    tell_of_pin(step);
    return std::nullopt;
  }
  if (saved->num_hashes > 0) {
    log(fmt::format("Wrote checkpoint hash manifest to {} ({} hashes).",
                    join_path(step_location(step).path, manifest::kManifestName), saved->num_hashes));
  }
  return saved->bytes;
}

std::optional<int64_t> Saver::Parts::write(int64_t step, const JobSnapshot& state,
                                           const Together& among) const {
  return written(step, write_dcp(step_location(step), state.snapshot, job.rank(), among, hashes_files(),
                                 [&](int64_t bytes, double seconds) {
                                   report(EventKind::kWritten, step, bytes, seconds);
                                 }));
}

// What the last step's save holds. Tells of it.
JobSnapshot Saver::Parts::snapshot_of_last(int64_t step) const {
  if (!options.last_save_model_only) {
    log(fmt::format("Saving a full checkpoint at last step, step {}.", step));
    return snapshot_of_job(job, run_record(config));
  }
  log(fmt::format("Saving a model only checkpoint in torch.{} at last step, step {}.",
                  options.export_dtype.text(), step));
  return snapshot_of_model(*job.model, export_dtype(options));
}

std::optional<int64_t> Saver::Parts::write_now(const StepSave& save, const JobSnapshot& state) const {
  const bool in_hf = save.occasion == Occasion::kLastStep && options.last_save_in_hf;
  if (!in_hf) return write(save.step, state, ranks);
  return written(save.step,
                 write_hugging_face(step_location(save.step), state.snapshot, config.model.architecture,
                                    export_dtype(options), job.rank(), ranks, hashes_files()));
}

void Saver::Parts::publish(const StepSave& save, int64_t bytes) {
  const double seconds = save.began.seconds();
  published_step = save.step;
  lost = nullptr;
  longest_save_seconds = std::max(longest_save_seconds.load(), seconds);
  report(EventKind::kCommitted, save.step, bytes, seconds, save.pause);
}

// Of a save that wrote nothing and came to no error that is thrown: false. So a last step is pinned.
bool Saver::Parts::leave_out(const StepSave& save) const {
  if (save.occasion == Occasion::kLastStep) refuse_to_end_without(step_location(save.step).path);
  return false;
}

bool Saver::Parts::save_now(const std::shared_ptr<StepSave>& save) {
  log("Saving the checkpoint.");
  if (!attempt(*save, [&] { return make_room(save->step); })) return leave_out(*save);
  const bool as_last = save->occasion == Occasion::kLastStep;
  // An error here may be this rank's alone, which no rank can tolerate.
  const JobSnapshot state = as_last ? snapshot_of_last(save->step) : snapshot_of_job(job, run_record(config));
  const bool is_saved = attempt(*save, [&] {
    const std::optional<int64_t> bytes = write_now(*save, state);
    save->pause = save->asked.seconds();
    if (bytes) publish(*save, *bytes);
    return bytes.has_value();
  });
  if (!is_saved) return leave_out(*save);
  if (as_last) {
    log(fmt::format("Last step checkpoint completed in {:.2f}s", save->began.seconds()));
  } else {
    if (remover) remover->look_again(save->step);
    log(fmt::format("Finished saving the checkpoint in {:.2f} seconds.", save->began.seconds()));
  }
  return true;
}

// What may change with the next step is taken now, tensors apart.
bool Saver::Parts::stage(const std::shared_ptr<StepSave>& save) {
  log("Staging the checkpoint.");
  if (!attempt(*save, [&] { return make_room(save->step); })) return false;
  staging.clear();
  const auto state = std::make_shared<const JobSnapshot>(snapshot_of_job(job, run_record(config), &staging));
  if (options.async_mode == "async") staging.copy(default_num_threads());
  save->pause = save->asked.seconds();
  current = save;
  background.start([this, save, state] { write_staged(save, *state); });
  log(fmt::format("Finished staging the checkpoint in {:.2f} seconds.", save->pause.load()));
  return true;
}

void Saver::Parts::write_staged(const std::shared_ptr<StepSave>& save, const JobSnapshot& state) {
  try {
    staging.copy(1);
    report(EventKind::kStaged, save->step, staging.size_bytes(), save->began.seconds());
    manager::lower_priority();
    const std::optional<int64_t> bytes = write(save->step, state, background_ranks);
    if (!bytes) return;
    publish(*save, *bytes);
    log(fmt::format("Finished saving the checkpoint of step {} in {:.2f} seconds.", save->step,
                    save->began.seconds()));
    if (remover) remover->look_again(save->step);
  } catch (const std::exception& error) {
    warn(fmt::format("Saving the checkpoint of step {} failed: {}", save->step, error.what()));
    throw;
  }
}

Saver::Saver(const config::Trainer& config, const Job& job, LogLine log)
    : parts_(new Parts{config, job, std::move(log)}) {
  parts_->begin_background();
}

Saver::~Saver() = default;

void Saver::begin_with(int64_t step) {
  if (parts_->remover) parts_->remover->begin_with(step);
}

bool Saver::save(int64_t step, bool last_step) {
  const auto occasion = last_step ? Occasion::kLastStep : Occasion::kInterval;
  const auto save = std::make_shared<StepSave>(step, occasion);  // its pause begins with the save before it
  parts_->settle(/*more_follows=*/true);
  save->began = {};
  return last_step || !parts_->is_async() ? parts_->save_now(save) : parts_->stage(save);
}

bool Saver::save_before_end(int64_t step) {
  const auto save = std::make_shared<StepSave>(step, Occasion::kEarlyEnd);
  parts_->settle(/*more_follows=*/true);
  save->began = {};
  return parts_->published_step != step && parts_->save_now(save);
}

int64_t Saver::published_step() const { return parts_->published_step; }

double Saver::longest_save_seconds() const { return parts_->longest_save_seconds; }

void Saver::wait_for_staging() {
  if (!parts_->staging.is_copied()) {
    const Stopwatch stopwatch;
    parts_->staging.copy(default_num_threads());
    parts_->current->pause = parts_->current->pause + stopwatch.seconds();
  }
  if (!parts_->background.is_running()) parts_->settle(/*more_follows=*/true);
}

void Saver::close() {
  parts_->settle(/*more_follows=*/false);
  if (parts_->remover) parts_->remover->close();
  if (parts_->lost == nullptr) return;
  parts_->warn("The checkpoint that training went on without was the last one");
  std::rethrow_exception(std::exchange(parts_->lost, nullptr));
}

}  // namespace milepost::train
