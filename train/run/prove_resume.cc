#include "train/run/prove_resume.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "train/run/log.h"
#include "train/run/trainer.h"
#include "train/state/job_image.h"
#include "train/state/together.h"

namespace milepost::train {
namespace {

constexpr const char* kFolder = ".milepost-prove-resume";

std::vector<std::pair<std::string, double>> figures_of(const StepRecord& record) {
  std::vector<std::pair<std::string, double>> figures = {
      {"loss", record.figures.loss},
      {"greatest loss of a rank", record.figures.max_loss},
      {"norm of the gradients", record.figures.grad_norm},
      {"number of tokens", static_cast<double>(record.num_tokens)},
      {"auxiliary loss", record.aux_loss.value_or(0)}};
  figures.insert(figures.end(), record.learning_rates.begin(), record.learning_rates.end());
  return figures;
}

// What a rank has found, or the first of what others have.
std::string of_all(const Together& ranks, const std::string& found) {
  const std::vector<std::string> all = ranks.gather([&] { return found; });
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return fmt::format("rank {}: {}", rank, all[rank]);
  }
  return {};
}

void require(bool holds, const char* what, const char* hint) {
  if (!holds) throw ValueError(fmt::format("debug.prove_resume {}", what), hint);
}

}  // namespace

config::Trainer config_of_proof(config::Trainer config) {
  config::Checkpoint& options = config.checkpoint;
  require(options.enable, "saves a checkpoint and loads it, but checkpoints are off",
          "add --checkpoint.enable");
  require(!options.load_only, "saves a checkpoint, which checkpoint.load_only forbids",
          "add --checkpoint.no-load-only");
  require(config.comm.mode == "default", "needs ranks that are there", "leave out comm.mode");
  config.dump_folder = (std::filesystem::path(config.dump_folder) / kFolder).string();
  options.folder = "checkpoint";
  options.interval = 1;
  options.keep_latest_k = 0;
  options.load_step = -1;
  return config;
}

std::string figures_difference(const StepRecord& first, const StepRecord& again) {
  const auto a = figures_of(first), b = figures_of(again);
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::memcmp(&a[i].second, &b[i].second, sizeof(double)) == 0) continue;
    return fmt::format("{}: {} and {}", a[i].first, a[i].second, b[i].second);
  }
  return a.size() == b.size() ? std::string() : "another number of figures";
}

std::vector<StepRecord> Trainer::steps_until(int64_t last) {
  std::vector<StepRecord> records;
  begin_interval();
  while (state_.step < last) {
    if (!train_step()) {
      throw ValueError(fmt::format("the data end before step {}, the last of debug.prove_resume", last),
                       "give more data, or a smaller number");
    }
    log_step();
    records.push_back(record_);
  }
  return records;
}

void Trainer::forget() {
  checkpointer_.reset();
  validator_.reset();
  metrics_.reset();
  data_.reset();
  ema_.reset();
  scheduler_.reset();
  optimizer_.reset();
  sharded_ = nullptr;
  execution_.reset();
  model_.reset();
  state_ = {};
  record_ = {};
}

std::string Trainer::prove_resume() {
  try {
    const Together ranks(is_alone() ? nullptr : groups_.get());
    // What a proof that was killed has left is no step of this one.
    const std::filesystem::path folder = config_.dump_folder;
    ranks.all([&] {
      if (ranks.is_first()) std::filesystem::remove_all(folder / config_.checkpoint.folder);
    });
    const std::string difference = resume_and_compare(ranks);
    forget();
    ranks.all([&] {
      if (ranks.is_first()) std::filesystem::remove_all(folder);
    });
    return difference;
  } catch (const std::exception& error) {
    report_failure(error);
    throw;
  }
}

std::string Trainer::resume_and_compare(const Together& ranks) {
  checkpointer_->load(-1);
  const int64_t saved = state_.step + kStepsBeforeProof, last = saved + config_.debug.prove_resume;
  if (last > config_.training.steps) {
    throw ValueError(fmt::format("debug.prove_resume {} trains up to step {}, beyond training.steps {}",
                                 config_.debug.prove_resume, last, config_.training.steps),
                     "give more steps, or a smaller number");
  }
  steps_until(saved);
  checkpointer_->save(saved, /*last_step=*/false);
  const JobImage when_saved(job());
  const std::vector<StepRecord> first = steps_until(last);
  const JobImage at_end(job());
  checkpointer_->close();

  log_info(fmt::format("Going back to step {}, in a job built anew", saved));
  forget();
  build();
  checkpointer_->load(saved);
  std::string found = of_all(ranks, when_saved.difference(job()));
  if (!found.empty()) return fmt::format("step {}, as loaded, on {}", saved, found);
  for (const StepRecord& record : first) {
    steps_until(record.figures.step);
    found = of_all(ranks, figures_difference(record, record_));
    if (!found.empty()) return fmt::format("step {}, on {}", state_.step, found);
  }
  found = of_all(ranks, at_end.difference(job()));
  if (!found.empty()) return fmt::format("after step {}, on {}", last, found);
  log_info(
      fmt::format("Resume proved: step {} loaded and steps {} to {} done again are the same to the bit, with "
                  "{} tensors ({:.3f} GiB on this rank)",
                  saved, saved + 1, last, at_end.num_tensors(), gib(at_end.size_bytes())));
  return {};
}

}  // namespace milepost::train
