// A save is the engine's four steps in a staging folder beside the final one: propose (job_snapshot), decide
// (plan_global), write, publish. A load is: choose (manager/start), compare, fill (job_load).
#include "train/state/checkpointer.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <optional>

#include "milepost/base/error.h"
#include "milepost/config/bundled.h"
#include "milepost/engine/ema.h"
#include "milepost/manager/entries.h"
#include "milepost/manager/events.h"
#include "milepost/manager/pins.h"
#include "milepost/manager/retention.h"
#include "milepost/manager/start.h"
#include "milepost/storage/staging.h"
#include "train/state/job_load.h"
#include "train/state/job_save.h"
#include "train/state/job_snapshot.h"
#include "train/state/run_record.h"
#include "train/state/together.h"

namespace milepost::train {
namespace {

using manager::Message;
using manager::Start;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void make_folders(Storage& storage, const std::string& path) {
  if (storage.stat(path)) return;
  const std::string parent = parent_path(path);
  if (parent != path) make_folders(storage, parent);
  storage.make_directory(path);
}

DType export_dtype(const config::Checkpoint& options) {
  if (options.export_dtype == "float16") return DType::kFloat16;
  return options.export_dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace

struct Checkpointer::Parts {
  const config::Trainer& config;
  const Job job;
  const LogLine log_line;
  const config::Checkpoint& options = config.checkpoint;
  const StorageLocation folder = resolve_location(manager::checkpoint_folder(config));
  int64_t saved_step = -1;
  // Of the first rank, where steps are saved.
  std::unique_ptr<manager::EventLog> events = {};
  std::unique_ptr<manager::StepRemover> remover = {};

  void log(const std::string& text) const {
    if (log_line) log_line(false, text);
  }
  void warn(const std::string& text) const {
    if (log_line) log_line(true, text);
  }
  void log_all(const std::vector<Message>& messages) const {
    for (const Message& message : messages) message.is_warning ? warn(message.text) : log(message.text);
  }

  void begin_background();
  void report(manager::CheckpointEvent::Kind kind, int64_t step, int64_t bytes, double seconds,
              std::optional<double> pause = std::nullopt) const {
    if (events) events->add({kind, step, bytes, seconds, pause});
  }
  // Makes the folder of steps. False: the step is there and pinned, and must stay as it is.
  bool make_room(int64_t step) const {
    const std::string pin = Together(job.groups).first([&] {
      make_folders(*folder.storage, folder.path);
      return std::string(manager::is_pinned(step_location(step)) ? manager::kPinName : "");
    });
    if (!pin.empty()) warn(fmt::format("step-{} is pinned: it stays as it is, and is not saved again", step));
    return pin.empty();
  }
  void remove_debris() const;
  std::vector<std::string> parts_of_job() const;
  std::optional<EmaCopy> average_of(const Checkpoint& checkpoint, const Start& start) const;
  std::shared_ptr<const Checkpoint> open(const Start& start) const;
  void load_from(const Start& start) const;
  StorageLocation step_location(int64_t step) const {
    return {folder.storage, manager::step_path(folder.path, step)};
  }
  // These return the bytes that they wrote.
  int64_t save_full(int64_t step);
  int64_t save_model(int64_t step);
  int64_t save_last(int64_t step);
  int64_t write(int64_t step, const JobSnapshot& state) const {
    return write_dcp(step_location(step), state.snapshot, job, [&](int64_t bytes, double seconds) {
      report(manager::CheckpointEvent::Kind::kWritten, step, bytes, seconds);
    });
  }
};

// A failure there is none of the run's.
void Checkpointer::Parts::begin_background() {
  if (job.rank() != 0 || job.optimizer == nullptr || options.load_only) return;
  const StorageLocation dump = resolve_location(config.dump_folder);
  const std::string file = join_path(dump.path, "checkpoint-events.jsonl");
  events = std::make_unique<manager::EventLog>(StorageLocation{dump.storage, file}, log_line);
  remover = std::make_unique<manager::StepRemover>(
      folder, options,
      [this](bool is_warning, std::string_view text) {
        if (log_line) log_line(is_warning, text);
      },
      events.get());
}

// Of saves that a kill interrupted. A failure costs nothing but room.
void Checkpointer::Parts::remove_debris() const {
  try {
    const int count = remove_stale_staging(folder.storage, folder.path);
    if (count > 0) log(fmt::format("Removed what {} interrupted saves left in {}", count, folder.path));
  } catch (const Error& error) {
    warn(
        fmt::format("What interrupted saves left in {} could not be removed: {}", folder.path, error.what()));
  }
}

std::vector<std::string> Checkpointer::Parts::parts_of_job() const {
  std::vector<std::string> parts = manager::parts_to_load(options);
  if (job.optimizer == nullptr) return {};
  if (job.data == nullptr) std::erase(parts, "dataloader");
  return parts;
}

// The moving average to load. Without one it begins with what else is loaded.
std::optional<EmaCopy> Checkpointer::Parts::average_of(const Checkpoint& checkpoint,
                                                       const Start& start) const {
  const std::vector<EmaCopy> copies = ema_copies(checkpoint.catalog());
  if (job.ema == nullptr || job.optimizer == nullptr) {
    if (!copies.empty() && job.optimizer != nullptr && !start.model_only) {
      warn("The checkpoint holds a moving average of the weights, which this run does not keep");
    }
    return std::nullopt;
  }
  const bool is_wanted = !start.model_only && !manager::is_excluded(options, kEmaPart);
  if (!is_wanted || copies.empty()) {
    warn(fmt::format("The moving average of the weights begins anew with the weights that are loaded: {}",
                     is_wanted          ? "the checkpoint holds none"
                     : start.model_only ? "only the model is loaded"
                                        : "checkpoint.exclude_from_loading names ema_optimizer"));
    return std::nullopt;
  }
  const config::EmaWeights& ema = job.ema->options();
  const bool is_only = copies.size() == 1 || copies[0].name.empty();
  const EmaCopy copy =
      *choose_ema(checkpoint, is_only ? "" : ema_copy_name(ema.decay, ema.half_life_fraction));
  if (!copy.name.empty()) log(fmt::format("Loading the moving average {} of the weights", copy.name));
  return copy;
}

void Checkpointer::Parts::load_from(const Start& start) const {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::optional<EmaCopy> average;
  Together(job.groups).all([&] {
    checkpoint = open(start);
    average = average_of(*checkpoint, start);
    if (!start.from_hf && !start.model_only) manager::check_excluded(options);
  });
  if (start.from_hf) {
    log_all(load_model(checkpoint, config.model.architecture, start.quantised, job));
  } else {
    log_all(
        load_job(checkpoint, start.model_only ? std::vector<std::string>{} : parts_of_job(), job, average));
  }
  if (job.ema != nullptr && !average) job.ema->reseed();
  if (start.from_hf || job.data == nullptr) return;
  for (const data::Message& message : job.data->take_messages()) {
    message.is_warning ? warn(message.text) : log(message.text);
  }
}

std::shared_ptr<const Checkpoint> Checkpointer::Parts::open(const Start& start) const {
  std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(start.path);
  const bool is_dcp = checkpoint->format() == CheckpointFormat::kDcp;
  if (start.from_hf != !is_dcp) {
    ValueError error(is_dcp ? "this is a DCP checkpoint, not one of Hugging Face"
                            : "this is a checkpoint of Hugging Face, not a DCP one",
                     is_dcp ? "leave out --checkpoint.initial-load-in-hf"
                            : "load it in a new folder, with --checkpoint.initial-load-path and "
                              "--checkpoint.initial-load-in-hf");
    error.set_path(start.path);
    throw error;
  }
  return checkpoint;
}

int64_t Checkpointer::Parts::save_full(int64_t step) {
  return write(step, snapshot_of_job(job, run_record(config)));
}

int64_t Checkpointer::Parts::save_model(int64_t step) {
  const JobSnapshot state = snapshot_of_model(*job.model, export_dtype(options));
  if (!options.last_save_in_hf) return write(step, state);
  return write_hugging_face(step_location(step), state.snapshot, config.model.architecture,
                            export_dtype(options), job);
}

int64_t Checkpointer::Parts::save_last(int64_t step) {
  if (options.last_save_model_only) {
    log(fmt::format("Saving a model only checkpoint in torch.{} at last step, step {}.",
                    options.export_dtype.text(), step));
    return save_model(step);
  }
  log(fmt::format("Saving a full checkpoint at last step, step {}.", step));
  return save_full(step);
}

Checkpointer::Checkpointer(const config::Trainer& config, const Job& job, LogLine log) {
  const std::vector<Message> messages = manager::check_supported(config);
  for (const Message& message : messages) {
    if (log) log(message.is_warning, message.text);
  }
  if (!config.checkpoint.enable) return;
  parts_.reset(new Parts{config, job, std::move(log)});
  parts_->begin_background();
  parts_->log(fmt::format("Checkpointing active. Checkpoints will be loaded from and saved to {}",
                          parts_->folder.path));
}

Checkpointer::~Checkpointer() = default;

bool Checkpointer::load(int64_t step) {
  if (parts_ == nullptr) return false;
  const StorageLocation& folder = parts_->folder;
  manager::Survey found;
  if (step < 0) {
    found = manager::survey_steps(folder, parts_->parts_of_job());
  } else {
    const std::optional<FileInfo> info = folder.storage->stat(folder.path);
    found.folder_exists = info && info->is_directory;
  }
  const Together ranks(parts_->job.groups);
  ranks.first([&] {
    if (found.folder_exists && !parts_->options.load_only) parts_->remove_debris();
    return std::string();
  });
  const Start start = manager::choose_start(parts_->options, folder.path,
                                            config::find_bundled(parts_->config.hf_assets_path), step, found);
  parts_->log_all(start.messages);
  if (start.source == Start::Source::kFresh) {
    ranks.all([] {});
    return false;
  }
  manager::require_present(start);
  for (const std::string& other : ranks.gather([&] { return start.path; })) {
    if (other == start.path) continue;
    throw ValueError(fmt::format("ranks see other checkpoints: {} and {}", start.path, other),
                     "let all nodes share the checkpoint folder");
  }
  const Stopwatch stopwatch;
  parts_->log(fmt::format("Loading the checkpoint from {}.", start.path));
  parts_->load_from(start);
  parts_->log(fmt::format("Finished loading the checkpoint in {:.2f} seconds.", stopwatch.seconds()));
  return true;
}

bool Checkpointer::save(int64_t step, bool last_step) {
  if (parts_ == nullptr || !manager::should_save(parts_->options, step, last_step)) return false;
  const Stopwatch stopwatch;
  parts_->log("Saving the checkpoint.");
  if (!parts_->make_room(step)) return false;
  const int64_t bytes = last_step ? parts_->save_last(step) : parts_->save_full(step);
  parts_->report(manager::CheckpointEvent::Kind::kCommitted, step, bytes, stopwatch.seconds(),
                 stopwatch.seconds());
  if (last_step) {
    parts_->log(fmt::format("Last step checkpoint completed in {:.2f}s", stopwatch.seconds()));
  } else {
    if (parts_->remover) parts_->remover->look_again();
    parts_->log(fmt::format("Finished saving the checkpoint in {:.2f} seconds.", stopwatch.seconds()));
  }
  parts_->saved_step = step;
  return true;
}

bool Checkpointer::save_before_end(int64_t step) {
  if (parts_ == nullptr || parts_->options.load_only || parts_->saved_step == step) return false;
  const Stopwatch stopwatch;
  parts_->log("Saving the checkpoint.");
  if (!parts_->make_room(step)) return false;
  const int64_t bytes = parts_->save_full(step);
  parts_->report(manager::CheckpointEvent::Kind::kCommitted, step, bytes, stopwatch.seconds(),
                 stopwatch.seconds());
  parts_->saved_step = step;
  parts_->log(fmt::format("Finished saving the checkpoint in {:.2f} seconds.", stopwatch.seconds()));
  return true;
}

void Checkpointer::wait_for_staging() {}  // every save ends before it returns

void Checkpointer::close() {
  if (parts_ != nullptr && parts_->remover) parts_->remover->close();
}

}  // namespace milepost::train
