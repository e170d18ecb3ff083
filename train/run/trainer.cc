#include "train/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "milepost/base/error.h"
#include "milepost/manager/policy.h"
#include "train/models/loss.h"
#include "train/run/batches.h"
#include "train/run/environment.h"
#include "train/run/log.h"
#include "train/run/model_log.h"
#include "train/run/non_finite.h"
#include "train/run/prove_resume.h"
#include "train/run/run_checks.h"
#include "train/run/stop_signals.h"
#include "train/run/summary.h"
#include "train/run/torch_error.h"

namespace milepost::train {

void Trainer::save_seed() {
  checkpointer_->save(0, /*last_step=*/true);
  checkpointer_->close();
  log_info("Created seed checkpoint");
}

RunEnd Trainer::train() {
  try {
    return run_steps();
  } catch (const std::exception& error) {
    report_failure(error);
    throw;
  }
}

std::string Trainer::place() const {
  return fmt::format("Rank {} on {} failed at step {} in {}", mesh_.rank(), host_name(), clock_.step(),
                     clock_.latest());
}

void Trainer::report_failure(const std::exception& error) {
  stop_point_.end();
  if (board_ == nullptr) return;
  const std::string text = fmt::format("{}: {}", place(), readable_text(error));
  log_error(text);
  const auto* of_others = dynamic_cast<const CommunicationError*>(&error);
  if (of_others != nullptr && !of_others->ranks().empty()) {
    log_error("What failed first: " + board_->fail_after_others(of_others->ranks()));
  } else {
    board_->fail(text);
  }
}

RunEnd Trainer::run_steps() {
  checkpointer_->load(config_.checkpoint.load_step);
  log_messages(*data_);
  const int64_t first_step = state_.step + 1;
  log_info(first_step > config_.training.steps
               ? fmt::format("All {} steps are done already", config_.training.steps)
               : fmt::format("Training starts at step {}", first_step));
  stop_point_.begin(first_step);
  profiler_ = std::make_unique<TraceProfiler>(config_.profiler, config_.dump_folder, rank(), first_step);
  interval_start_ = PhaseClock::Clock::now();
  totals_.first_step = first_step;
  RunEnd end;
  while (state_.step < config_.training.steps && end.signal == 0) {
    if (!train_step()) {
      end_of_data(&end);
      break;
    }
    log_step();
    if (state_.step == first_step) {
      groups_->set_timeout(std::chrono::seconds(config_.comm.train_timeout_seconds));
    }
    finish_step(&end);
  }
  stop_point_.end();
  checkpointer_->close();
  totals_.last_saved_step = checkpointer_->published_step();
  if (!totals_.losses.empty() && mesh_.rank() == 0) show_summary();
  if (end.signal == 0) log_info("Training completed");
  return end;
}

bool Trainer::train_step() {
  clock_.begin_step(++state_.step);
  optimizer_->zero_grad();
  std::vector<data::Batch> batches;
  bool has_data = read_batches(&batches);
  if (Group* all = ranks("world")) has_data = all_reduce(*all, has_data ? 0 : 1, Reduction::kMax) == 0;
  if (!has_data) return false;
  record_ = {};
  int64_t num_valid = 0;
  for (const data::Batch& batch : batches) {
    num_valid += num_valid_labels(batch.labels);
    record_.num_tokens += static_cast<int64_t>(batch.labels.size());
  }
  const int64_t local_valid = num_valid;
  if (Group* batch = ranks("batch")) {
    num_valid = static_cast<int64_t>(all_reduce(*batch, static_cast<double>(num_valid)));
  }
  double sum = 0;
  for (data::Batch& batch : batches) sum += forward_backward(batch, num_valid);
  state_.ntokens_seen += record_.num_tokens;
  record_.num_tokens_seen = state_.ntokens_seen;
  if (Group* batch = ranks("batch")) {
    record_.num_tokens_seen =
        static_cast<int64_t>(all_reduce(*batch, static_cast<double>(state_.ntokens_seen)));
  }
  double max_loss = sum;
  if (Group* loss = ranks("loss")) {
    const double mean =
        sum * static_cast<double>(num_valid) / static_cast<double>(std::max<int64_t>(local_valid, 1));
    max_loss = all_reduce(*loss, mean, Reduction::kMax);
    sum = all_reduce(*loss, sum);
  }
  update(sum, max_loss);
  return true;
}

bool Trainer::read_batches(std::vector<data::Batch>* batches) {
  const PhaseClock::Range range(clock_, Phase::kData);
  for (int64_t i = 0; i < batches_per_step_; ++i) {
    std::optional<data::Batch> batch = data_->next();
    log_messages(*data_);
    if (!batch) return false;
    batches->push_back(std::move(*batch));
  }
  return true;
}

double Trainer::forward_backward(data::Batch& read, int64_t global_valid_tokens) {
  const Batch batch = to_tensors(read, device_);
  at::Tensor value;
  {
    const PhaseClock::Range range(clock_, Phase::kForward);
    const std::vector<at::Tensor> hidden = model_->hidden(batch, *execution_, /*training=*/true);
    value = loss(config_.loss, *model_, *execution_, hidden, batch, global_valid_tokens);
  }
  const PhaseClock::Range range(clock_, Phase::kBackward);
  value.backward();
  execution_->finish_backward();
  return value.item<double>();
}

double Trainer::clip(double loss) {
  const PhaseClock::Range range(clock_, Phase::kOptimizer);
  check_finite(state_.step, loss, std::nullopt, model_->parameters());
  const double norm = clip_gradients(model_->parameters(), config_.training.max_norm.value, ranks("fsdp"));
  check_finite(state_.step, loss, norm, model_->parameters());
  return norm;
}

void Trainer::update(double loss, double max_loss) {
  const double norm = clip(loss);
  {
    const PhaseClock::Range range(clock_, Phase::kStaging);
    checkpointer_->wait_for_staging();
  }
  const PhaseClock::Range range(clock_, Phase::kOptimizer);
  const std::vector<ExpertLoad*> loads = model_->expert_loads();
  if (const auto& coeff = config_.model.options.load_balance_coeff; coeff)
    update_expert_biases(loads, *coeff, ranks("loss"));
  optimizer_->step();
  if (ema_) ema_->update(state_.step);
  record_.learning_rates = learning_rates(*optimizer_);
  scheduler_->step();

  record_.figures.step = state_.step;
  record_.figures.loss = loss;
  record_.figures.max_loss = max_loss;
  if (sharded_ != nullptr) record_.exposed = sharded_->take_exposed();
  record_.figures.grad_norm = norm;
  if (!config_.model.options.aux_loss_coeff || loads.empty()) return;
  double sum = 0;
  for (ExpertLoad* load : loads) sum += std::exchange(load->aux_loss, 0.0);
  if (Group* batch = ranks("batch")) sum = all_reduce(*batch, sum);
  record_.aux_loss = sum / static_cast<double>(loads.size());
}

void Trainer::log_step() {
  const PhaseClock::Range range(clock_, Phase::kLog);
  StepFigures& figures = record_.figures;
  figures.memory = memory_.take_peak();
  interval_memory_.join(figures.memory);
  interval_.num_tokens += record_.num_tokens;
  interval_.num_steps += 1;
  interval_.data_seconds += clock_.seconds(Phase::kData);
  if (state_.step != 1 && state_.step % config_.metrics.log_freq != 0) return;

  interval_.seconds = std::chrono::duration<double>(PhaseClock::Clock::now() - interval_start_).count();
  StepRecord shown = record_;
  shown.figures.memory = interval_memory_;
  shown.figures.rates = rates(interval_, size_.flops_per_token, peak_.per_second);
  log_info(step_line(shown.figures, colors_));
  if (metrics_)
    metrics_->write_scalars(state_.step, step_scalars(shown, interval_, config_.metrics.log_freq,
                                                      interval_.num_steps * batches_per_step_));
  begin_interval();
}

void Trainer::begin_interval() {
  interval_ = {};
  interval_memory_ = {};
  interval_start_ = PhaseClock::Clock::now();
}

void Trainer::finish_step(RunEnd* end) {
  const bool is_last = state_.step == config_.training.steps;
  {
    const PhaseClock::Range range(clock_, Phase::kCheckpoint);
    checkpointer_->save(state_.step, is_last);
  }
  if (const auto warning = grace_.warning(clock_.training_seconds(), checkpointer_->longest_save_seconds())) {
    log_warning(*warning);
  }
  if (validator_ && validator_->is_due(state_.step)) validate();
  // After what else belongs to the step, so that a step that ends the training is whole.
  if (!is_last) stop_if_asked(end);
  const double seconds = clock_.training_seconds();
  record_.figures.rates = rates({record_.num_tokens, 1, seconds}, size_.flops_per_token, peak_.per_second);
  if (metrics_) metrics_->write_json(step_json(record_, clock_));
  totals_.add(record_.figures.loss, record_.num_tokens, clock_);
  profiler_->step(state_.step);
}

void Trainer::stop_if_asked(RunEnd* end) {
  end->signal = stop_point_.after(state_.step);
  if (end->signal != 0) save_for_stop(*end);
}

// The step that had no data is none. Where ranks are to stop after it, they stop before.
void Trainer::end_of_data(RunEnd* end) {
  log_warning("Ran out of data; last step was canceled.");
  --state_.step;
  end->signal = stop_point_.at_end_of_data();
  if (Group* all = ranks("world")) {
    end->signal = static_cast<int>(all_reduce(*all, end->signal, Reduction::kMax));
  }
  if (end->signal == 0) return;
  if (state_.step >= totals_.first_step) return save_for_stop(*end);
  log_warning(StopSignals::name(end->signal) + ": stopped before the first step, with nothing to save");
}

void Trainer::save_for_stop(const RunEnd& end) {
  const PhaseClock::Range range(clock_, Phase::kCheckpoint);
  checkpointer_->save_before_end(state_.step);
  const bool is_saved = checkpointer_->published_step() == state_.step;
  const bool is_off = !config_.checkpoint.enable || config_.checkpoint.load_only;
  log_warning(fmt::format("{}: stopped after step {}, which is {}", StopSignals::name(end.signal),
                          state_.step,
                          is_saved ? "saved"
                          : is_off ? "not saved: checkpoints are off"
                                   : "not saved: one that is pinned has its name"));
}

void Trainer::validate() {
  const PhaseClock::Range range(clock_, Phase::kValidation);
  const std::optional<ValidationResult> result = validator_->run();
  if (!result) return;
  StepFigures figures;
  figures.step = state_.step;
  figures.loss = figures.max_loss = result->loss;
  figures.memory = memory_.take_peak();
  figures.rates.tokens_per_second = static_cast<double>(result->num_tokens) / std::max(result->seconds, 1e-9);
  log_info(validation_line(figures, colors_));
  if (metrics_) {
    metrics_->write_json(validation_json(figures, result->seconds));
    metrics_->write_scalars(state_.step, validation_scalars(figures));
  }
  begin_interval();
}

void Trainer::show_summary() const {
  const RunSummary run = {
      .title = model_title(config_.model),
      .totals = totals_,
      .flops_per_token = size_.flops_per_token,
      .causal_flops_per_token = causal_flops_per_token(config_.model, config_.training.seq_len),
      .peak_flops = peak_.per_second,
      .peak_source = peak_.source,
      .peak_bytes = memory_.most_bytes(),
      .start_bytes = start_bytes_,
      .estimate = estimate_memory(config_, *model_),
      .checkpoint_folder = config_.checkpoint.enable ? manager::checkpoint_folder(config_) : std::string(),
      .metrics_path = (std::filesystem::path(config_.dump_folder) / "metrics.jsonl").string()};
  std::string text;
  for (const std::string& line : summary_lines(run, terminal_has_unicode())) text += line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

RunEnd run_training(const config::Trainer& config) try {
  if (config.checkpoint.create_seed_checkpoint) {
    Trainer(config_of_seed(config)).save_seed();
    return {};
  }
  if (config.debug.prove_resume == 0) return Trainer(config).train();
  const std::string difference = Trainer(config_of_proof(config)).prove_resume();
  if (!difference.empty()) throw ResumeError(difference);
  return {};
} catch (const c10::Error& error) {
  throw_readable(error);
}

}  // namespace milepost::train
