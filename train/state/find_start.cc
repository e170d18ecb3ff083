#include "train/state/find_start.h"

#include <fmt/format.h>

#include "milepost/base/error.h"
#include "milepost/config/bundled.h"
#include "milepost/manager/events.h"
#include "milepost/manager/fit.h"
#include "milepost/manager/integrity.h"
#include "milepost/storage/staging.h"
#include "train/state/stopwatch.h"

namespace milepost::train {
namespace {

using manager::Start;

class Finder {
 public:
  Finder(const config::Trainer& config, const Job& job, const std::vector<std::string>& parts, int64_t step,
         const Together& ranks, const LogLine& log)
      : config_(config), job_(job), parts_(parts), step_(step), ranks_(ranks), log_(log) {}

  Start find() {
    // First: a step may come back to its place.
    ranks_.all([&] {
      if (ranks_.is_first() && !options_.load_only) settle_debris();
    });
    ranks_.all([&] { look(); });
    for (;;) {
      const Start start = choose();
      if (start.source == Start::Source::kFresh || !options_.extensions.verify_hash_manifest) {
        tell(start);
        return start;
      }
      manager::Integrity integrity = verify(start);
      const bool is_good = integrity.is_good(options_.extensions.require_manifest);
      const bool falls_back = !is_good && may_fall_back(start) && !integrity.ranks_disagree;
      if (!falls_back) tell(start);
      if (is_good) return start;
      if (integrity.is_damaged && start.source == Start::Source::kOwnStep && step_ < 0) {
        integrity.hint += "; --checkpoint.fallback-to-older takes the newest older step that is whole";
      }
      CheckpointManifestError refusal = manager::refusal(start.path, integrity);
      if (!falls_back) throw refusal;
      say(true, refusal.what());
      say(true, fmt::format("An older step is looked for in place of step {} (checkpoint.fallback_to_older)",
                            start.step));
      ranks_.all([&] { manager::pass_over_newest(folder_, parts_, manager::brief(integrity), &found_); });
    }
  }

 private:
  void say(bool is_warning, const std::string& text) const {
    if (log_) log_(is_warning, text);
  }
  void tell(const Start& start) const {
    for (const manager::Message& message : start.messages) say(message.is_warning, message.text);
  }

  void look() {
    if (step_ < 0) {
      found_ = manager::survey_steps(folder_, parts_);
    } else {
      named_ = manager::look_up_step(folder_, step_, parts_);
    }
  }

  // Of saves and removals that a kill interrupted. A failure costs room, or a step that is passed over.
  void settle_debris() const {
    try {
      if (!folder_.storage->stat(folder_.path)) return;
      const StaleStaging done = settle_stale_staging(folder_.storage, folder_.path);
      for (const std::string& path : done.put_back) {
        say(false,
            fmt::format("{} is back at its place, which an interrupted save or removal had moved it from",
                        path));
      }
      if (done.num_removed > 0) {
        say(false, fmt::format("Removed what {} interrupted saves or removals left in {}", done.num_removed,
                               folder_.path));
      }
    } catch (const Error& error) {
      say(true, fmt::format("What interrupted saves or removals left in {} could not be removed: {}",
                            folder_.path, error.what()));
    }
  }

  // The same on all ranks.
  Start choose() const {
    Start start;
    const std::vector<std::string> paths = ranks_.gather([&] {
      start = step_ < 0 ? manager::choose_start(options_, folder_.path,
                                                config::find_bundled(config_.hf_assets_path), found_)
                        : manager::choose_named_step(options_, folder_.path, step_, named_);
      manager::require_present(start);
      return start.path;
    });
    const auto text = [](const std::string& path) { return path.empty() ? "no checkpoint" : path; };
    for (size_t rank = 1; rank < paths.size(); ++rank) {
      if (paths[rank] == paths[0]) continue;
      throw ValueError(
          fmt::format("ranks would start from different checkpoints: rank 0 from {}, rank {} from {}",
                      text(paths[0]), rank, text(paths[rank])),
          "let all nodes share the checkpoint folder");
    }
    return start;
  }

  bool may_fall_back(const Start& start) const {
    return options_.fallback_to_older && start.source == Start::Source::kOwnStep && step_ < 0;
  }

  manager::Integrity verify(const Start& start) const {
    const Stopwatch stopwatch;
    manager::Integrity integrity = manager::judge(start.path, ranks_.gather([&] {
      return manager::inspect(resolve_location(start.path), job_.rank(), ranks_.size());
    }));
    if (!integrity.has_manifest || !integrity.fault.empty()) return integrity;
    say(false, fmt::format("Checkpoint hash manifest verified for {}", start.path));
    if (!integrity.unlisted.empty()) {
      say(false, fmt::format("The manifest does not list {}", manager::names_text(integrity.unlisted, 20)));
    }
    report(start, integrity.bytes, stopwatch.seconds());
    return integrity;
  }

  void report(const Start& start, int64_t bytes, double seconds) const {
    if (job_.rank() != 0 || job_.optimizer == nullptr || options_.load_only || start.step < 0) return;
    manager::EventLog events(manager::events_file(config_.dump_folder), log_);
    events.add({manager::CheckpointEvent::Kind::kVerified, start.step, bytes, seconds});
  }

  const config::Trainer& config_;
  const Job& job_;
  const std::vector<std::string>& parts_;
  const int64_t step_;
  const Together& ranks_;
  const LogLine& log_;
  const config::Checkpoint& options_ = config_.checkpoint;
  const StorageLocation folder_ = resolve_location(manager::checkpoint_folder(config_));
  manager::Survey found_;     // where no step is named
  manager::NamedStep named_;  // where one is
};

}  // namespace

manager::Start find_start(const config::Trainer& config, const Job& job,
                          const std::vector<std::string>& parts, int64_t step, const Together& ranks,
                          const LogLine& log) {
  return Finder(config, job, parts, step, ranks, log).find();
}

}  // namespace milepost::train
