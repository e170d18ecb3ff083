#include "train/run/metrics_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "milepost/base/error.h"
#include "train/run/log.h"

namespace milepost::train {
namespace {

using Json = nlohmann::ordered_json;

std::string time_folder() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:%Y%m%d-%H%M}", local);
}

void add_memory(const MemoryUse& memory, const std::string& prefix, std::vector<Scalar>* scalars) {
  scalars->push_back({prefix + "/max_active(GiB)", gib(memory.active_bytes)});
  scalars->push_back({prefix + "/max_active(%)", memory.active_percent()});
  scalars->push_back({prefix + "/max_reserved(GiB)", gib(memory.reserved_bytes)});
  scalars->push_back({prefix + "/max_reserved(%)", memory.reserved_percent()});
}

}  // namespace

std::string step_json(const StepRecord& record, const PhaseClock& clock) {
  const StepFigures& f = record.figures;
  Json json = {{"step", f.step}, {"loss", f.loss}, {"grad_norm", f.grad_norm}};
  for (const auto& [name, rate] : record.learning_rates) json[name] = rate;
  if (record.aux_loss) json["seqwise_load_balance_loss/mean"] = *record.aux_loss;
  json["tokens"] = record.num_tokens;
  json["ntokens_seen"] = record.num_tokens_seen;
  json["tps"] = f.rates.tokens_per_second;
  json["tflops"] = f.rates.tflops;
  json["mfu_percent"] = f.rates.mfu_percent;
  json["memory_bytes"] = f.memory.reserved_bytes;
  Json seconds = {{"total", clock.total_seconds()}};
  double known = 0;
  for (size_t i = 0; i < kNumPhases; ++i) {
    const double spent = clock.seconds(static_cast<Phase>(i));
    seconds[std::string(kPhaseNames[i])] = spent;
    known += spent;
  }
  seconds["other"] = std::max(0.0, clock.total_seconds() - known);
  json["seconds"] = seconds;
  if (record.exposed) {
    json["exposed_seconds"] = {{"gather", record.exposed->gather}, {"scatter", record.exposed->scatter}};
  }
  return json.dump();
}

std::string validation_json(const StepFigures& f, double seconds) {
  const Json json = {{"step", f.step},
                     {"validation_loss", f.loss},
                     {"tps", f.rates.tokens_per_second},
                     {"memory_bytes", f.memory.reserved_bytes},
                     {"seconds", {{"total", seconds}}}};
  return json.dump();
}

std::vector<Scalar> step_scalars(const StepRecord& record, const Interval& interval, int64_t log_freq,
                                 int64_t num_data_loads) {
  const StepFigures& f = record.figures;
  const Rates& rates = f.rates;
  std::vector<Scalar> scalars = {
      {"loss_metrics/global_avg_loss", f.loss},
      {"loss_metrics/global_max_loss", f.max_loss},
      {"grad_norm", f.grad_norm},
      {"throughput(tps)", rates.tokens_per_second},
      {"tflops", rates.tflops},
      {"mfu(%)", rates.mfu_percent},
      {"time_metrics/end_to_end(s)", interval.seconds / static_cast<double>(log_freq)},
      {"time_metrics/data_loading(s)",
       interval.data_seconds / static_cast<double>(std::max<int64_t>(1, num_data_loads))},
      {"time_metrics/data_loading(%)", 100 * interval.data_seconds / std::max(interval.seconds, 1e-9)}};
  add_memory(f.memory, "memory", &scalars);
  scalars.push_back({"memory/num_alloc_retries", static_cast<double>(f.memory.num_retries)});
  scalars.push_back({"memory/num_ooms", static_cast<double>(f.memory.num_failures)});
  scalars.push_back({"n_tokens_seen", static_cast<double>(record.num_tokens_seen)});
  for (const auto& [name, rate] : record.learning_rates) scalars.push_back({name, rate});
  if (record.aux_loss) scalars.push_back({"seqwise_load_balance_loss/mean", *record.aux_loss});
  return scalars;
}

std::vector<Scalar> validation_scalars(const StepFigures& f) {
  std::vector<Scalar> scalars = {{"validation_metrics/loss", f.loss},
                                 {"validation_metrics/throughput(tps)", f.rates.tokens_per_second}};
  add_memory(f.memory, "validation_metrics/memory", &scalars);
  return scalars;
}

MetricsWriter::MetricsWriter(const config::Metrics& options, const std::string& dump_folder)
    : path_((std::filesystem::path(dump_folder) / "metrics.jsonl").string()), json_(path_, std::ios::app) {
  if (!json_) throw StorageError(ErrorCode::kIo, "cannot write metrics", path_, errno);
  if (!options.enable_tensorboard) return;
  const std::filesystem::path folder =
      std::filesystem::path(dump_folder) / options.save_tb_folder / time_folder();
  events_ = std::make_unique<EventFile>((options.save_for_all_ranks ? folder / "rank_0" : folder).string());
  log_info(fmt::format("TensorBoard logging enabled. Logs will be saved at {}",
                       std::filesystem::path(events_->path()).parent_path().string()));
}

void MetricsWriter::write_json(const std::string& line) {
  json_ << line << '\n' << std::flush;
  if (!json_) throw StorageError(ErrorCode::kIo, "cannot write metrics", path_, errno);
}

void MetricsWriter::write_scalars(int64_t step, const std::vector<Scalar>& scalars) {
  if (events_) events_->write(step, scalars);
}

}  // namespace milepost::train
