#include "milepost/data/loader.h"

#include <algorithm>
#include <utility>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/data/datasets.h"
#include "milepost/data/token_cache.h"

namespace milepost::data {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

void check_at_least(int64_t least, int64_t value, const char* name) {
  if (value < least) {
    throw ValueError(std::string(name) + " is " + number(value) + ", expected at least " + number(least));
  }
}

const LoaderOptions& checked(const LoaderOptions& options) {
  check_at_least(1, options.local_batch_size, "training.local_batch_size");
  check_at_least(1, options.seq_len, "training.seq_len");
  check_at_least(1, options.dp_world, "the data-parallel degree");
  int64_t tokens = 0;
  if (!checked_mul(options.local_batch_size, options.seq_len, &tokens) || tokens > int64_t{1} << 32) {
    throw ValueError("a batch of " + number(options.local_batch_size) + " rows of " +
                     number(options.seq_len) + " tokens is beyond 2^32 tokens");
  }
  if (options.dp_rank < 0 || options.dp_rank >= options.dp_world) {
    throw ValueError("data-parallel rank " + number(options.dp_rank) + " is not below the degree, " +
                     number(options.dp_world));
  }
  return options;
}

std::unique_ptr<TokenSource> open_source(const std::shared_ptr<Storage>& storage,
                                         const LoaderOptions& options, const Dataset& dataset,
                                         const DocumentEncoder& encoder) {
  auto documents = std::make_unique<Documents>(
      storage, dataset.files,
      DocumentOptions{.text_field = options.text_field, .spool_folder = options.spool_folder});
  if (documents->size() == 0) {
    ValueError error("the data set has no documents", "name its files with --dataloader.dataset-path");
    error.set_path(dataset.path);
    throw error;
  }
  auto source = std::make_unique<EncodingSource>(std::move(documents), encoder, options.on_bad_record);
  if (options.token_cache.empty()) return source;
  return std::make_unique<TokenCache>(storage, options.token_cache, std::move(source));
}

std::string preparing(const Dataset& dataset) {
  return "Preparing " + dataset.name + " dataset from " + dataset.path;
}

DataShape shape_of(const TokenSource& source, Split split) {
  return {.num_documents = source.size(), .file_documents = source.file_documents(), .split = split};
}

}  // namespace

std::unique_ptr<Loader> Loader::open(std::shared_ptr<Storage> storage, const LoaderOptions& options,
                                     DocumentEncoder encoder) {
  checked(options);
  std::vector<Message> messages;
  std::unique_ptr<TokenSource> source;
  Split split = Split::kMapStyle;
  LoaderOptions named = options;
  if (options.sources.empty()) {
    const Dataset dataset = find_dataset(*storage, options.dataset, options.dataset_path);
    messages.push_back({.is_warning = false, .text = preparing(dataset)});
    source = open_source(storage, options, dataset, encoder);
    split = dataset.split;
    named.dataset = dataset.name;
  } else {
    std::vector<std::unique_ptr<TokenSource>> parts;
    std::vector<double> weights;
    named.dataset.clear();
    for (const WeightedDataset& part : options.sources) {
      const Dataset dataset = find_dataset(*storage, part.dataset, part.dataset_path);
      messages.push_back({.is_warning = false, .text = preparing(dataset)});
      parts.push_back(open_source(storage, options, dataset, encoder));
      weights.push_back(part.weight);
      named.dataset += (named.dataset.empty() ? "" : "+") + dataset.name;
    }
    source = std::make_unique<InterleavedSource>(std::move(parts), weights, options.interleave_seed,
                                                 options.stopping_strategy);
  }
  auto loader = std::make_unique<Loader>(std::move(source), split, encoder.fingerprint, named);
  loader->messages_ = std::move(messages);
  return loader;
}

Loader::Loader(std::unique_ptr<TokenSource> source, Split split, std::string tokenizer_fingerprint,
               const LoaderOptions& options)
    : options_(checked(options)),
      tokenizer_fingerprint_(std::move(tokenizer_fingerprint)),
      source_(std::move(source)),
      shape_(shape_of(*source_, split)),
      reader_rank_(options.order == DataOrder::kGlobal ? 0 : options.dp_rank),
      reader_world_(options.order == DataOrder::kGlobal ? 1 : options.dp_world),
      order_(shape_, reader_rank_, reader_world_, options.infinite),
      packer_(options.seq_len) {
  if (order_.state().pending.empty()) {
    throw ValueError("data set '" + options_.dataset + "' has " + number(shape_.num_documents) +
                         " documents, which leaves none for data-parallel rank " + number(options_.dp_rank) +
                         " of " + number(options_.dp_world),
                     "use more documents, fewer ranks, or --dataloader.order=global");
  }
}

void Loader::check_ids(int64_t document) const {
  if (options_.model_vocab_size <= 0) return;
  for (int32_t id : ids_) {
    if (id >= 0 && id < options_.model_vocab_size) continue;
    ValueError error("token id " + number(id) + " is beyond the model's vocabulary of " +
                         number(options_.model_vocab_size),
                     "use the tokenizer that belongs to the model, or a model with a larger vocabulary",
                     ErrorCode::kOutOfBounds);
    error.set_path(source_->place(document));
    throw error;
  }
}

// The next document's number; nullopt when there are no more. Whoever gets a token out of it sets
// num_barren_restarts_ to 0.
std::optional<int64_t> Loader::next_document() {
  const int64_t epoch = order_.state().epoch;
  const std::optional<int64_t> document = order_.next();
  if (!document || order_.state().epoch == epoch) return document;
  if (++num_barren_restarts_ > 1) {
    throw ValueError("a whole epoch of data set '" + options_.dataset + "' gave no tokens",
                     "every document is empty, shorter than two tokens, or was passed over as bad");
  }
  messages_.push_back({.is_warning = true,
                       .text = "Dataset " + options_.dataset + " is being re-looped (epoch " +
                               number(order_.state().epoch) + ")"});
  report_skipped();
  return document;
}

// How many bad records there were in all, which is more than are shown one by one.
void Loader::report_skipped() {
  const int64_t num_skipped = source_->num_skipped();
  if (num_skipped == num_reported_) return;
  messages_.push_back({.is_warning = true,
                       .text = "Dataset " + options_.dataset + ": " + number(num_skipped) +
                               " bad records passed over so far"});
  num_reported_ = num_skipped;
}

void Loader::append(int64_t document) {
  ids_.clear();
  source_->append(document, &ids_);
  check_ids(document);
  packer_.append(ids_);
  if (ids_.size() > 1) num_barren_restarts_ = 0;
}

// Reads documents until a row can be cut; false when there are no more.
bool Loader::fill() {
  while (!packer_.has_row()) {
    const std::optional<int64_t> document = next_document();
    if (!document) return false;
    append(*document);
  }
  return true;
}

// Passes over rows of other ranks; documents that lie in them as a whole need not be read where their length
// is known.
bool Loader::drop_rows(int64_t count) {
  int64_t left = count * options_.seq_len;
  for (;;) {
    left -= packer_.drop(left);
    if (left == 0) return true;
    const std::optional<int64_t> document = next_document();
    if (!document) return false;
    const std::optional<int64_t> num_ids = source_->count(*document);
    if (num_ids && *num_ids - 1 <= left) {
      left -= std::max<int64_t>(0, *num_ids - 1);
      if (*num_ids > 1) num_barren_restarts_ = 0;
    } else {
      append(*document);
    }
  }
}

std::optional<Batch> Loader::next() {
  if (ended_) return std::nullopt;
  const bool is_global = options_.order == DataOrder::kGlobal;
  const int64_t rows = options_.local_batch_size;
  ended_ = is_global && !drop_rows(options_.dp_rank * rows);
  Batch batch{.seq_len = options_.seq_len, .inputs = {}, .positions = {}, .labels = {}};
  const auto size = static_cast<size_t>(rows * options_.seq_len);
  for (std::vector<int64_t>* part : {&batch.inputs, &batch.positions, &batch.labels}) part->resize(size);
  while (!ended_ && batch.rows < rows) {
    ended_ = !fill();
    if (ended_) break;
    const int64_t at = batch.rows++ * options_.seq_len;
    packer_.take_row({batch.inputs.data() + at, batch.positions.data() + at, batch.labels.data() + at});
  }
  if (!ended_ && is_global) ended_ = !drop_rows((options_.dp_world - 1 - options_.dp_rank) * rows);
  if (ended_) {
    messages_.push_back({.is_warning = true, .text = "Dataset " + options_.dataset + " has run out of data"});
    report_skipped();
    for (std::vector<int64_t>* part : {&batch.inputs, &batch.positions, &batch.labels}) {
      part->resize(static_cast<size_t>(batch.rows * options_.seq_len));
    }
  }
  if (batch.rows == 0) return std::nullopt;
  ++num_batches_;
  num_tokens_ += batch.rows * options_.seq_len;
  return batch;
}

LoaderState Loader::state() const {
  return {.order = order_.state(), .buffers = packer_.buffers(), .num_batches = num_batches_};
}

void Loader::set_state(LoaderState state) {
  order_.set_state(std::move(state.order));
  packer_.set_buffers(std::move(state.buffers));
  num_batches_ = state.num_batches;
  ended_ = false;
}

LedgerIdentity Loader::identity() const {
  return {.dataset = options_.dataset,
          .data_fingerprint = source_->fingerprint(),
          .tokenizer = tokenizer_fingerprint_,
          .num_documents = shape_.num_documents,
          .order = options_.order,
          .world = options_.dp_world};
}

std::string Loader::ledger_part(const LoaderState& state) const {
  return data::ledger_part(identity(), state);
}

std::vector<Message> Loader::take_messages() {
  for (std::string& text : source_->take_warnings()) {
    messages_.push_back({.is_warning = true, .text = std::move(text)});
  }
  return std::exchange(messages_, {});
}

}  // namespace milepost::data
