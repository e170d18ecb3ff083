// The data of a run: its tokenizer and loader, as the configuration names them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "milepost/config/trainer.h"
#include "milepost/data/prefetch.h"
#include "train/parallel/device_mesh.h"

namespace milepost::train {

// This process's place among those that read different text.
struct DataRank {
  int64_t rank = 0, world = 1;
};
DataRank data_rank(const DeviceMesh& mesh);

// Tokenizer and loader of the training data, with a thread that reads ahead. Throws what
// Tokenizer::load and Loader::open throw.
std::unique_ptr<data::Prefetcher> open_training_data(const config::Trainer& trainer, const DataRank& rank);

// The same for validation: validator.dataloader, starting at its beginning; without end unless
// validator.steps asks for all there is.
std::unique_ptr<data::Prefetcher> open_validation_data(const config::Trainer& trainer, const DataRank& rank);

// What the loader had to say since the last call, into the log.
void log_messages(data::Prefetcher& loader);

// Batches that a step of this rank takes: global_batch_size over those of all ranks. Throws ValueError as
// TorchTitan does where it does not divide.
int64_t batches_per_step(const config::Training& training, int64_t data_world);

// Reads what training would read: logs tokens and rate every metrics.log_freq steps and at the end. For
// --count-tokens.
void count_tokens(const config::Trainer& trainer, const DataRank& rank);

}  // namespace milepost::train
