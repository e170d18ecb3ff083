#include "train/run/validator.h"

#include <chrono>

#include "milepost/base/error.h"
#include "train/models/loss.h"
#include "train/run/batches.h"
#include "train/run/stop_signals.h"

namespace milepost::train {

Validator::Validator(const config::Trainer& config, const DataRank& rank, Model& model, Execution& execution,
                     at::Device device, Group* ranks)
    : config_(config),
      rank_(rank),
      model_(model),
      execution_(execution),
      device_(device),
      ranks_(ranks),
      opened_(open_validation_data(config, rank)) {}

bool Validator::is_due(int64_t step) const { return step == 1 || step % config_.validator.freq == 0; }

// What any rank wants, all do: they go through the model together.
Validator::Verdict Validator::agree(bool is_stopped, bool is_over) const {
  if (ranks_ == nullptr) return {is_stopped, is_over};
  const auto wish = static_cast<int64_t>(all_reduce(*ranks_,
                                                    is_stopped ? 2.0
                                                    : is_over  ? 1.0
                                                               : 0.0,
                                                    Reduction::kMax));
  return {wish == 2, wish >= 1};
}

std::optional<ValidationResult> Validator::run() {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<data::Prefetcher> data =
      opened_ ? std::move(opened_) : open_validation_data(config_, rank_);
  ValidationResult result;
  double sum = 0;
  int64_t num_valid = 0;
  for (int64_t i = 0; config_.validator.steps == -1 || i < config_.validator.steps; ++i) {
    std::optional<data::Batch> read = data->next();
    log_messages(*data);
    const Verdict verdict = agree(StopSignals::received() != 0, !read);
    if (verdict.is_stopped) return std::nullopt;
    if (verdict.is_over) break;
    const Batch batch = to_tensors(*read, device_);
    const auto hidden = model_.hidden(batch, execution_, /*training=*/false);
    sum += loss(config_.loss, model_, execution_, hidden, batch, /*global_valid_tokens=*/1).item<double>();
    num_valid += num_valid_labels(read->labels);
    result.num_tokens += static_cast<int64_t>(read->labels.size());
  }
  if (ranks_ != nullptr) {
    sum = all_reduce(*ranks_, sum);
    num_valid = static_cast<int64_t>(all_reduce(*ranks_, static_cast<double>(num_valid)));
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
