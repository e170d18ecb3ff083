// A save is the engine's four steps in a staging folder beside the final one: propose (job_snapshot), decide
// (plan_global), write, publish (job_save); when and on which thread is the saver's. A load is: choose
// (manager/start), compare, fill (job_load).
#include "train/state/checkpointer.h"

#include <fmt/format.h>

#include <optional>

#include "milepost/base/error.h"
#include "milepost/engine/ema.h"
#include "milepost/manager/entries.h"
#include "milepost/manager/start.h"
#include "train/state/find_start.h"
#include "train/state/job_load.h"
#include "train/state/saver.h"
#include "train/state/stopwatch.h"
#include "train/state/together.h"

namespace milepost::train {
namespace {

using manager::Message;
using manager::Start;

}  // namespace

struct Checkpointer::Parts {
  const config::Trainer& config;
  const Job job;
  const LogLine log_line;
  const config::Checkpoint& options = config.checkpoint;
  const StorageLocation folder = resolve_location(manager::checkpoint_folder(config));
  std::optional<Saver> saver = {};  // where steps are saved

  void log(const std::string& text) const {
    if (log_line) log_line(false, text);
  }
  void warn(const std::string& text) const {
    if (log_line) log_line(true, text);
  }
  void log_all(const std::vector<Message>& messages) const {
    for (const Message& message : messages) message.is_warning ? warn(message.text) : log(message.text);
  }

  std::vector<std::string> parts_of_job() const;
  std::optional<EmaCopy> average_of(const Checkpoint& checkpoint, const Start& start) const;
  std::shared_ptr<const Checkpoint> open(const Start& start) const;
  void load_from(const Start& start) const;
};

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
    for (const std::string& warning : checkpoint->warnings()) warn(start.path + ": " + warning);
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

Checkpointer::Checkpointer(const config::Trainer& config, const Job& job, LogLine log) {
  const std::vector<Message> messages = manager::check_supported(config);
  for (const Message& message : messages) {
    if (log) log(message.is_warning, message.text);
  }
  if (!config.checkpoint.enable) return;
  parts_.reset(new Parts{config, job, std::move(log)});
  if (!config.checkpoint.load_only) parts_->saver.emplace(config, job, parts_->log_line);
  parts_->log(fmt::format("Checkpointing active. Checkpoints will be loaded from and saved to {}",
                          parts_->folder.path));
}

Checkpointer::~Checkpointer() = default;

bool Checkpointer::load(int64_t step) {
  if (parts_ == nullptr) return false;
  const Together ranks(parts_->job.groups);
  const Start start =
      find_start(parts_->config, parts_->job, parts_->parts_of_job(), step, ranks, parts_->log_line);
  if (start.source == Start::Source::kFresh) return false;
  const Stopwatch stopwatch;
  parts_->log(fmt::format("Loading the checkpoint from {}.", start.path));
  parts_->load_from(start);
  if (parts_->saver && parts_->job.train != nullptr) parts_->saver->begin_with(parts_->job.train->step);
  parts_->log(fmt::format("Finished loading the checkpoint in {:.2f} seconds.", stopwatch.seconds()));
  return true;
}

bool Checkpointer::save(int64_t step, bool last_step) {
  if (parts_ == nullptr || !manager::should_save(parts_->options, step, last_step)) return false;
  return parts_->saver->save(step, last_step);
}

bool Checkpointer::save_before_end(int64_t step) {
  return parts_ != nullptr && parts_->saver && parts_->saver->save_before_end(step);
}

int64_t Checkpointer::published_step() const {
  return parts_ != nullptr && parts_->saver ? parts_->saver->published_step() : -1;
}

double Checkpointer::longest_save_seconds() const {
  return parts_ != nullptr && parts_->saver ? parts_->saver->longest_save_seconds() : 0;
}

void Checkpointer::wait_for_staging() {
  if (parts_ != nullptr && parts_->saver) parts_->saver->wait_for_staging();
}

void Checkpointer::close() {
  if (parts_ != nullptr && parts_->saver) parts_->saver->close();
}

}  // namespace milepost::train
