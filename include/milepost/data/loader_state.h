// The state of a data loader, and the two forms in which a checkpoint holds it.
//
// TorchTitan's entry `dataloader.dp_rank_{r}`: a pickled dictionary (spec training, 3.4), which both programs
// read and write; it describes one rank of one data-parallel degree. Milepost's ledger,
// `milepost.data_ledger`: JSON that holds what every rank has read, so that any number of ranks can go on,
// each document once an epoch, tokens in packing buffers included.
//
// Plain values and pure functions: any thread. A state holds the tokens of its packing buffer, so at most a
// row and a document; a ledger those of every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/data/document_order.h"
#include "milepost/data/packing.h"

namespace milepost::data {

enum class DataOrder : uint8_t {
  kTorchTitan,  // each data-parallel rank reads and packs its own documents
  kGlobal,      // one packed stream of the whole data set, dealt to the ranks row by row
};
std::string_view data_order_name(DataOrder order);  // "torchtitan", "global"

// Of one reader: a rank, or the one stream of DataOrder::kGlobal.
struct LoaderState {
  OrderState order;
  PackingBuffers buffers;
  int64_t num_batches = 0;  // given out
  bool operator==(const LoaderState&) const = default;
};

// The fields of TorchTitan's dictionary that say something.
struct TitanLoaderState {
  PackingBuffers buffers;
  int64_t sample_idx = 0;  // documents read of `epoch`
  int64_t epoch = 0;
  int64_t num_batches = 0;
  std::vector<std::string> warnings;  // about fields that were missing, on reading
};

// Protocol 2, all nine keys. `rows_per_batch`: the local batch size.
std::string write_titan_state(const TitanLoaderState& state, int64_t rows_per_batch);

// Untrusted bytes: executes nothing. Throws FormatError with `name` as path: kMissingKey for a key that
// TorchTitan would miss as well, kBadFormat for a value of another type, negative or too large, kUnsupported
// for the state of a streaming data set or of several loader workers, which cannot be followed. Missing
// `positions_buffer`: positions are counted from the buffer's start, with a warning; missing `epoch`: 0.
TitanLoaderState read_titan_state(std::string_view bytes, std::string_view name);

// What the ledger says of the run, and what another must agree with.
struct LedgerIdentity {
  std::string dataset;           // name, for messages
  std::string data_fingerprint;  // TokenSource::fingerprint
  std::string tokenizer;         // DocumentEncoder::fingerprint
  int64_t num_documents = 0;
  DataOrder order = DataOrder::kTorchTitan;
  int64_t world = 1;  // data-parallel ranks
  bool operator==(const LedgerIdentity&) const = default;
};

struct Ledger {
  LedgerIdentity identity;
  // One a rank under kTorchTitan, a single one under kGlobal.
  std::vector<LoaderState> readers;
};

// Each rank's share travels as text: `ledger_part` here, gathered by the caller in order of ranks, joined by
// `join_ledger`. All shares of the global order are equal, and the first is kept.
std::string ledger_part(const LedgerIdentity& identity, const LoaderState& state);
std::string join_ledger(std::span<const std::string> parts);

// Untrusted bytes. Throws FormatError with `name` as path: kBadFormat for what is no ledger, kUnsupported for
// a later format, kOutOfBounds for documents beyond the data set.
Ledger read_ledger(std::string_view text, std::string_view name);

}  // namespace milepost::data
