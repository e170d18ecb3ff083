// What a Trainer consists of, from the settings to the first step.
#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "milepost/base/error.h"
#include "milepost/config/config_file.h"
#include "milepost/config/validate.h"
#include "train/models/sharding.h"
#include "train/run/batches.h"
#include "train/run/block_cache.h"
#include "train/run/determinism.h"
#include "train/run/environment.h"
#include "train/run/log.h"
#include "train/run/model_log.h"
#include "train/run/planned_fault.h"
#include "train/run/run_checks.h"
#include "train/run/trainer.h"

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

}  // namespace milepost::train
