#include "train/run/run_data.h"

#include <fmt/format.h>

#include <chrono>

#include "milepost/base/error.h"
#include "milepost/config/bundled.h"
#include "milepost/data/loader.h"
#include "milepost/text/tokenizer.h"
#include "train/run/log.h"

namespace milepost::train {
namespace {

constexpr std::string_view kBundledDataset = "c4_test", kBundledDatasetPath = "tests/assets/c4_test";

std::string dataset_path(const std::string& dataset, const std::optional<std::string>& path) {
  if (path) return *path;
  if (dataset != kBundledDataset) return {};
  const std::string bundled(kBundledDatasetPath);
  const std::string found = config::find_bundled(bundled);
  return found == bundled ? std::string() : found;
}

data::LoaderOptions loader_options(const config::Trainer& trainer, const config::Dataloader& section,
                                   const DataRank& rank) {
  data::LoaderOptions options;
  options.dataset = section.dataset;
  options.dataset_path = dataset_path(section.dataset, section.dataset_path);
  for (const config::DataSource& source : section.sources) {
    options.sources.push_back(
        {source.dataset, dataset_path(source.dataset, source.dataset_path), source.weight});
  }
  options.interleave_seed = static_cast<uint64_t>(section.mixing_seed);
  options.stopping_strategy = section.stopping_strategy == "all_exhausted"
                                  ? data::StoppingStrategy::kAllExhausted
                                  : data::StoppingStrategy::kOnFirstExhausted;
  options.infinite = section.infinite;
  options.local_batch_size = trainer.training.local_batch_size;
  options.seq_len = trainer.training.seq_len;
  options.dp_rank = rank.rank;
  options.dp_world = rank.world;
  options.order = section.order == "global" ? data::DataOrder::kGlobal : data::DataOrder::kTorchTitan;
  options.text_field = section.text_field;
  options.on_bad_record =
      section.on_bad_record == "skip" ? data::OnBadRecord::kSkip : data::OnBadRecord::kFail;
  options.token_cache = section.token_cache.value_or("");
  options.model_vocab_size =
      std::visit([](const auto& dims) { return dims.vocab_size; }, trainer.model.architecture.dims);
  return options;
}

std::unique_ptr<data::Prefetcher> open_data(const config::Trainer& trainer, const config::Dataloader& section,
                                            const DataRank& rank) {
  const auto tokenizer = text::Tokenizer::load(config::find_bundled(trainer.hf_assets_path));
  for (const std::string& warning : tokenizer->warnings()) log_warning(warning);
  auto loader = data::Loader::open(posix_storage(), loader_options(trainer, section, rank),
                                   data::document_encoder(tokenizer));
  return std::make_unique<data::Prefetcher>(std::move(loader),
                                            static_cast<int>(section.prefetch_factor.value_or(0)));
}

}  // namespace

DataRank data_rank(const DeviceMesh& mesh) { return {mesh.coordinate("batch"), mesh.size("batch")}; }

std::unique_ptr<data::Prefetcher> open_training_data(const config::Trainer& trainer, const DataRank& rank) {
  return open_data(trainer, trainer.dataloader, rank);
}

std::unique_ptr<data::Prefetcher> open_validation_data(const config::Trainer& trainer, const DataRank& rank) {
  config::Dataloader section = trainer.validator.dataloader;
  section.infinite = trainer.validator.steps != -1;
  return open_data(trainer, section, rank);
}

void log_messages(data::Prefetcher& loader) {
  for (const data::Message& message : loader.take_messages()) {
    log(message.is_warning ? LogLevel::kWarning : LogLevel::kInfo, message.text);
  }
}

int64_t batches_per_step(const config::Training& training, int64_t data_world) {
  const int64_t one_each = training.local_batch_size * data_world;
  const int64_t global = training.global_batch_size < 0 ? one_each : training.global_batch_size;
  if (one_each <= 0 || global <= 0 || global % one_each != 0) {
    throw ValueError(
        fmt::format("global batch size must be multiple of local batch size times data-parallel degree "
                    "({} % ({} * {}) != 0)",
                    global, training.local_batch_size, data_world));
  }
  return global / one_each;
}

void count_tokens(const config::Trainer& trainer, const DataRank& rank) {
  const int64_t batches = batches_per_step(trainer.training, rank.world);
  const std::unique_ptr<data::Prefetcher> loader = open_training_data(trainer, rank);
  const auto start = std::chrono::steady_clock::now();
  int64_t tokens = 0, step = 0;
  const auto report = [&] {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    log_info(
        fmt::format("step: {:2}  tokens: {}  tps: {}", step, tokens,
                    static_cast<int64_t>(static_cast<double>(tokens) / std::max(seconds.count(), 1e-9))));
  };
  bool is_empty = false;
  while (step < trainer.training.steps && !is_empty) {
    for (int64_t i = 0; i < batches && !is_empty; ++i) {
      const std::optional<data::Batch> batch = loader->next();
      is_empty = !batch;
      if (batch) tokens += batch->rows * batch->seq_len;
      log_messages(*loader);
    }
    if (is_empty) break;
    if (++step % trainer.metrics.log_freq == 0) report();
  }
  if (is_empty) log_warning("Ran out of data; last step was canceled.");
  if (is_empty && tokens == 0) {
    throw ValueError("the data fill no batch", "give more text, or a smaller batch or sequence length");
  }
  if (step % trainer.metrics.log_freq != 0 || step == 0) report();
  if (loader->num_skipped() > 0)
    log_warning(fmt::format("{} bad records were passed over", loader->num_skipped()));
}

}  // namespace milepost::train
