#include "train/run/trainer.h"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "milepost/base/error.h"
#include "milepost/config/config_file.h"
#include "milepost/config/validate.h"
#include "milepost/manager/policy.h"
#include "train/models/loss.h"
#include "train/models/sharding.h"
#include "train/run/batches.h"
#include "train/run/block_cache.h"
#include "train/run/determinism.h"
#include "train/run/environment.h"
#include "train/run/log.h"
#include "train/run/model_log.h"
#include "train/run/non_finite.h"
#include "train/run/planned_fault.h"
#include "train/run/prove_resume.h"
#include "train/run/run_checks.h"
#include "train/run/stop_signals.h"
#include "train/run/summary.h"
#include "train/run/torch_error.h"

namespace milepost::train {
namespace {

Colors colors_of(const config::Metrics& options) {
  const char* none = std::getenv("NO_COLOR");
  const bool plain = options.disable_color_printing || (none != nullptr && *none != '\0');
  return plain ? Colors{} : Colors::terminal();
}

bool is_fake(const config::Trainer& config) { return config.comm.mode == "fake_backend"; }

DeviceMesh checked_mesh(const config::Trainer& config) {
  check_settings(config);
  config::validate_build(config);
  check_parallelism(config.parallelism);
  return {resolve_degrees(config.parallelism, is_fake(config) ? fake_world_size() : world_size()), rank()};
}

// A rank among ranks that are not there has nothing worth keeping, and no whole checkpoint.
config::Trainer without_checkpoints_of_fakes(config::Trainer config) {
  if (!is_fake(config) || fake_world_size() == 1 || !config.checkpoint.enable) return config;
  log_warning("comm.mode fake_backend: no checkpoint is read or written");
  config.checkpoint.enable = false;
  return config;
}

// The first line in which another rank's configuration differs from the first rank's, if any does.
void require_equal_configs(const config::Trainer& config, Group& ranks) {
  const std::string own = config::config_file_text(config, "", "");
  const std::vector<std::string> all = all_gather_strings(ranks, own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto [first, other] =
        std::mismatch(all[0].begin(), all[0].end(), all[rank].begin(), all[rank].end());
    if (first == all[0].end() && other == all[rank].end()) continue;
    const auto line_at = [](const std::string& text, size_t at) {
      const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
      std::string line = text.substr(begin, text.find('\n', at) - begin);
      return line.substr(std::min(line.size(), line.find_first_not_of(' ')));
    };
    const auto at = static_cast<size_t>(first - all[0].begin());
    throw ValueError(
        fmt::format("ranks were started with different configurations: rank 0 has {}, rank {} has {}",
                    line_at(all[0], at), rank, line_at(all[rank], at)),
        "start all processes with the same command line and files");
  }
}

at::Device checked_device(const config::Trainer& config) {
  const at::Device device = find_device(config.device, local_rank());
  if (device.is_cpu()) {
    cache_large_blocks();
  } else {
    at::accelerator::setDeviceIndex(device.index());
  }
  log_info(fmt::format("Device {}, {} threads", device.str(), set_threads()));
  return device;
}

}  // namespace

Trainer::Trainer(const config::Trainer& config)
    : config_(without_checkpoints_of_fakes(config)),
      device_(checked_device(config)),
      mesh_(checked_mesh(config)),
      place_(data_rank(mesh_)),
      batches_per_step_(batches_per_step(config.training, place_.world)),
      memory_(device_),
      colors_(colors_of(config.metrics)) {
  check_folders(config_);
  join_job();
  try {
    build();
  } catch (const std::exception& error) {
    report_failure(error);
    throw;
  }
}

void Trainer::build() {
  const uint64_t seed = set_determinism(config_.debug, ranks("world"));
  log_info(fmt::format("Seed of random numbers: {}", seed));
  peak_ = peak_flops(device_, dtype_of(config_.training.mixed_precision_param.text()));
  start_bytes_ = device_.is_cpu() ? resident_bytes() : 0;
  memory_.take_peak();
  build_model_parts();
  build_optimizer();
  open_data();
  checkpointer_ = std::make_unique<Checkpointer>(config_, job(), [](bool is_warning, std::string_view text) {
    is_warning ? log_warning(text) : log_info(text);
  });
  if (config_.validator.enable) {
    validator_ = std::make_unique<Validator>(config_, place_, *model_, *execution_, device_, ranks("batch"));
  }
  log_start();
}

Trainer::~Trainer() = default;

Job Trainer::job() {
  return {model_.get(), optimizer_.get(), scheduler_.get(), data_.get(),
          &state_,      place_.rank,      place_.world,     is_alone() ? nullptr : groups_.get(),
          ema_.get()};
}

void Trainer::join_job() {
  log_info("Building device mesh with parallelism: " + mesh_.text());
  groups_ = is_fake(config_) ? ProcessGroups::fake(mesh_)
                             : ProcessGroups::join(mesh_, device_,
                                                   std::chrono::seconds(config_.comm.init_timeout_seconds));
  log_info(fmt::format("Successfully created meshes with active dimensions: [{}]",
                       fmt::join(mesh_.active_dimensions(), ", ")));
  if (!is_alone()) {
    log_info(fmt::format("Rank {} of {}, number {} on {}", mesh_.rank(), mesh_.degrees().world_size(),
                         local_rank(), host_name()));
    require_equal_configs(config_, groups_->group("world"));
  }
  if (groups_->store() != nullptr) {
    const auto end = [this](const std::string& reason) {
      log_error(place() + ": another rank failed");
      log_error("What failed first: " + reason);
      ::_exit(1);
    };
    board_ = std::make_unique<FailureBoard>(groups_->store(), mesh_.rank(), mesh_.degrees().world_size(), end,
                                            StopSignals::wake);
    stop_point_.join(*board_);
  }
  if (const auto fault = PlannedFault::from_environment(mesh_.rank())) {
    clock_.on_phase([fault](int64_t step, std::string_view phase) { fault->begin(step, phase); });
  }
}

void Trainer::make_execution_of_model() {
  const at::ScalarType compute = dtype_of(config_.training.mixed_precision_param.text());
  if (is_alone()) {
    execution_ = make_local_execution(compute, config_.activation_checkpoint);
    return;
  }
  shard_parameters(*model_, mesh_);
  auto weights = std::make_unique<ShardedWeights>(
      *groups_, *model_,
      ShardedWeights::Options{compute, dtype_of(config_.training.mixed_precision_reduce.text()),
                              config_.parallelism.fsdp_reshard_after_forward != "never"});
  sharded_ = weights.get();
  execution_ = make_execution(std::move(weights), config_.activation_checkpoint);
  log_info(mesh_.size("dp_replicate") > 1 ? "Applied HSDP to the model" : "Applied FSDP to the model");
}

void Trainer::build_model_parts() {
  log_info(fmt::format("Building {}", model_title(config_.model)));
  const config::Training& t = config_.training;
  const int64_t global_batch = t.local_batch_size * place_.world * batches_per_step_;
  model_ = build_model(config_.model, {.seq_len = t.seq_len,
                                       .force_load_balance = config_.debug.moe_force_load_balance,
                                       .global_batch_size = global_batch});
  for (const std::string& line : override_lines(config_.override.imports)) log_info(line);
  size_ = model_size(config_.model, t.seq_len);
  if (mesh_.rank() == 0) metrics_ = std::make_unique<MetricsWriter>(config_.metrics, config_.dump_folder);
  for (const std::string& line : size_lines(config_.model, size_, colors_)) log_info(line);
  log_info(fmt::format("Peak FLOPS used for computing MFU: {:.3e} ({})", peak_.per_second, peak_.source));
  make_execution_of_model();
  model_->allocate(dtype_of(t.dtype.text()), device_);
  model_->initialize();
  const MemoryUse use = memory_.take_peak();
  log_info(fmt::format("{} memory usage for model: {:.2f}GiB({:.2f}%)", device_word(device_),
                       gib(use.reserved_bytes), use.reserved_percent()));
}

void Trainer::build_optimizer() {
  optimizer_ = std::make_unique<Optimizer>(model_->parameters(), config_.optimizer);
  LrSchedule schedule(config_.lr_scheduler, config_.training.steps);
  for (const std::string& warning : schedule.warnings()) log_warning(warning);
  scheduler_ = std::make_unique<LrScheduler>(std::move(schedule), *optimizer_);
  for (const std::string& line : optimizer_lines(*optimizer_)) log_info(line);
  if (config_.ema_weights.enable) ema_ = std::make_unique<Ema>(model_->parameters(), config_.ema_weights);
}

void Trainer::open_data() {
  data_ = open_training_data(config_, place_);
  log_messages(*data_);
}

void Trainer::log_start() const {
  const config::Training& t = config_.training;
  log_info(
      fmt::format("Trainer is initialized with local batch size {}, global batch size {}, gradient "
                  "accumulation steps {}, sequence length {}, total steps {} (warmup {})",
                  t.local_batch_size, t.local_batch_size * place_.world * batches_per_step_,
                  batches_per_step_, t.seq_len, t.steps, config_.lr_scheduler.warmup_steps));
}

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
  if (const auto* of_others = dynamic_cast<const CommunicationError*>(&error)) {
    log_error("What failed first: " + board_->fail_after_others(of_others->ranks()));
  } else {
    board_->fail(text);
  }
}

RunEnd Trainer::run_steps() {
  checkpointer_->load(config_.checkpoint.load_step);
  log_messages(*data_);
  const int64_t first_step = state_.step + 1;
  log_info(fmt::format("Training starts at step {}", first_step));
  stop_point_.begin(first_step);
  profiler_ = std::make_unique<TraceProfiler>(config_.profiler, config_.dump_folder, rank(), first_step);
  interval_start_ = PhaseClock::Clock::now();
  totals_.first_step = first_step;
  RunEnd end;
  while (state_.step < config_.training.steps && end.signal == 0) {
    if (!train_step()) {
      log_warning("Ran out of data; last step was canceled.");
      break;
    }
    log_step();
    finish_step(&end);
    if (state_.step == first_step) {
      groups_->set_timeout(std::chrono::seconds(config_.comm.train_timeout_seconds));
    }
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

void Trainer::update(double loss, double max_loss) {
  const PhaseClock::Range range(clock_, Phase::kOptimizer);
  check_finite(state_.step, loss, std::nullopt, model_->parameters());
  const double norm = clip_gradients(model_->parameters(), config_.training.max_norm.value, ranks("fsdp"));
  check_finite(state_.step, loss, norm, model_->parameters());
  checkpointer_->wait_for_staging();
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
  if (end->signal == 0) return;
  const PhaseClock::Range range(clock_, Phase::kCheckpoint);
  checkpointer_->save_before_end(state_.step);
  const bool is_saved = checkpointer_->published_step() == state_.step;
  const bool is_off = !config_.checkpoint.enable || config_.checkpoint.load_only;
  log_warning(fmt::format("{}: stopped after step {}, which is {}", StopSignals::name(end->signal),
                          state_.step,
                          is_saved ? "saved"
                          : is_off ? "not saved: checkpoints are off"
                                   : "not saved; the lines above say why"));
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
