// Loader: batches of packed rows for one data-parallel rank, and the state to go on from.
//
// Documents are read in the order of document_order.h, encoded or taken from a token cache, packed into rows
// of seq_len (packing.h), and given out in batches of local_batch_size rows. Nothing depends on time or
// threads: the same options give the same batches, and a loader restored from a state gives exactly those
// that would have followed it.
//
//   auto loader = Loader::open(storage, options, document_encoder(tokenizer));
//   while (auto batch = loader->next()) train(*batch);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/data/loader_state.h"
#include "milepost/data/token_source.h"

namespace milepost::data {

struct WeightedDataset {
  std::string dataset, dataset_path;
  double weight = 1;
};

struct LoaderOptions {
  std::string dataset = "c4_test";  // a name of datasets.h
  std::string dataset_path = {};    // file or folder; "": the name's own
  // Mixed instead of `dataset`, when not empty (InterleavedSource).
  std::vector<WeightedDataset> sources = {};
  uint64_t interleave_seed = 42;
  StoppingStrategy stopping_strategy = StoppingStrategy::kOnFirstExhausted;

  bool infinite = true;
  int64_t local_batch_size = 8;
  int64_t seq_len = 2048;
  int64_t dp_rank = 0, dp_world = 1;
  DataOrder order = DataOrder::kTorchTitan;

  std::string text_field = "text";
  OnBadRecord on_bad_record = OnBadRecord::kFail;
  std::string token_cache = {};   // folder; "": none
  std::string spool_folder = {};  // DocumentOptions
  int64_t model_vocab_size = 0;   // ids must be below; 0: not checked
};

// Row-major [rows, seq_len]. `rows` is local_batch_size, but for the last batch of a finite data set.
struct Batch {
  int64_t rows = 0, seq_len = 0;
  std::vector<int64_t> inputs = {}, positions = {}, labels = {};
};

struct Message {
  bool is_warning;
  std::string text;
};

// What a checkpoint holds of the loader; absent entries are nullopt.
struct SavedLoader {
  std::optional<std::string> titan_entry = {};   // dataloader.dp_rank_{this rank}
  std::optional<int64_t> titan_world_size = {};  // dataloader.world_size
  std::optional<std::string> ledger = {};        // milepost.data_ledger
};

// Threads: one at a time, but titan_entry and ledger_part may be called beside the others.
class Loader {
 public:
  // Throws ValueError (unknown data set, sizes below 1, a rank without documents), StorageError kNotFound,
  // and what Documents throws.
  static std::unique_ptr<Loader> open(std::shared_ptr<Storage> storage, const LoaderOptions& options,
                                      DocumentEncoder encoder);
  // Over a source of one's own; `options` without those that choose one.
  Loader(std::unique_ptr<TokenSource> source, Split split, std::string tokenizer_fingerprint,
         const LoaderOptions& options);

  // nullopt: a finite data set has run out; the tokens that did not fill a row are dropped. Under the global
  // order the ranks may then differ by one batch. Throws FormatError for bad records (OnBadRecord::kFail),
  // ValueError (document and id named) for an id beyond the model's vocabulary, or when a whole epoch gives
  // no token. After an exception the loader is not to be used.
  std::optional<Batch> next();

  LoaderState state() const;
  void set_state(LoaderState state);

  // `state`, one that state() gave, as TorchTitan's entry. `*is_exact` is false where that form cannot say
  // it: in the epoch of a change of ranks, and for more than one rank under the global order; TorchTitan then
  // goes on near here.
  std::string titan_entry(const LoaderState& state, bool* is_exact) const;
  std::string ledger_part(const LoaderState& state) const;

  // Continues a checkpoint: by the ledger when there is one, on any number of ranks and in either order; else
  // by TorchTitan's entry; else from the start, with a warning. Throws ValueError when the state is of
  // another data set or tokenizer (both named), or TorchTitan's of another data-parallel degree; FormatError
  // for damaged states. After an exception nothing has changed.
  void restore(const SavedLoader& saved);

  int64_t batch_bytes() const { return 24 * options_.local_batch_size * options_.seq_len; }
  const TokenSource& source() const { return *source_; }
  int64_t num_tokens() const { return num_tokens_; }  // given out, as inputs
  // What happened since the last call, in order, for the log.
  std::vector<Message> take_messages();

 private:
  LedgerIdentity identity() const;
  std::optional<int64_t> next_document();
  void append(int64_t document);
  void report_skipped();
  bool fill();
  void check_ids(int64_t document) const;
  bool drop_rows(int64_t count);
  void restore_ledger(const std::string& text);
  void restore_titan(const SavedLoader& saved);

  LoaderOptions options_;
  std::string tokenizer_fingerprint_;
  std::unique_ptr<TokenSource> source_;
  DataShape shape_;
  int64_t reader_rank_, reader_world_;  // 0 of 1 under the global order
  DocumentOrder order_;
  Packer packer_;
  int64_t num_batches_ = 0, num_tokens_ = 0, num_barren_restarts_ = 0, num_reported_ = 0;
  bool ended_ = false;
  std::vector<Message> messages_;
  std::vector<int32_t> ids_;  // of one document
};

}  // namespace milepost::data
