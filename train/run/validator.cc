#include "train/run/validator.h"

#include <chrono>

#include "milepost/base/error.h"
#include "train/models/loss.h"
#include "train/run/batches.h"
#include "train/run/stop_signals.h"

namespace milepost::train {

Validator::Validator(const config::Trainer& config, const DataRank& rank, Model& model, Execution& execution,
                     at::Device device)
    : config_(config),
      rank_(rank),
      model_(model),
      execution_(execution),
      device_(device),
      opened_(open_validation_data(config, rank)) {}

bool Validator::is_due(int64_t step) const { return step == 1 || step % config_.validator.freq == 0; }

std::optional<ValidationResult> Validator::run() {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<data::Prefetcher> data =
      opened_ ? std::move(opened_) : open_validation_data(config_, rank_);
  ValidationResult result;
  double sum = 0;
  int64_t num_valid = 0;
  for (int64_t i = 0; config_.validator.steps == -1 || i < config_.validator.steps; ++i) {
    if (StopSignals::received() != 0) return std::nullopt;
    std::optional<data::Batch> read = data->next();
    log_messages(*data);
    if (!read) break;
    const Batch batch = to_tensors(*read, device_);
    const auto hidden = model_.hidden(batch, execution_, /*training=*/false);
    sum += loss(config_.loss, model_, execution_, hidden, batch, /*global_valid_tokens=*/1).item<double>();
    num_valid += num_valid_labels(read->labels);
    result.num_tokens += static_cast<int64_t>(read->labels.size());
  }
  if (num_valid == 0) {
    throw ValueError("the validation data fill no batch",
                     "give more text (validator.dataloader), or a smaller batch or sequence length");
  }
  result.loss = sum / static_cast<double>(num_valid);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace milepost::train
