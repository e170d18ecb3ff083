// How a loader's state goes into a checkpoint and comes back, in its own form and in TorchTitan's.
#include <algorithm>
#include <utility>

#include "milepost/base/error.h"
#include "milepost/data/loader.h"

namespace milepost::data {
namespace {

constexpr std::string_view kLedgerKey = "milepost.data_ledger";
constexpr const char* kLeaveOut =
    "leave the loader out of the load with --checkpoint.exclude-from-loading dataloader, which starts the "
    "data "
    "from its beginning";

std::string number(int64_t n) { return std::to_string(n); }

std::string entry_name(int64_t rank) { return "dp_rank_" + number(rank); }

std::string describe_data(const LedgerIdentity& identity) {
  return "'" + printable(identity.dataset) + "' (" + number(identity.num_documents) +
         " documents, fingerprint " + printable(identity.data_fingerprint) + ")";
}

void check_same_data(const LedgerIdentity& saved, const LedgerIdentity& own) {
  if (saved.data_fingerprint != own.data_fingerprint || saved.num_documents != own.num_documents) {
    throw ValueError("the checkpoint's data loader state is of data set " + describe_data(saved) +
                         ", this run reads " + describe_data(own),
                     kLeaveOut);
  }
  if (saved.tokenizer != own.tokenizer) {
    throw ValueError("the checkpoint's data loader state is of a tokenizer with fingerprint " +
                         printable(saved.tokenizer) + ", this run has " + printable(own.tokenizer),
                     kLeaveOut);
  }
}

// Ids below the model's vocabulary, where that is known.
void check_buffers(const PackingBuffers& buffers, int64_t vocab_size) {
  for (const std::vector<int32_t>* ids : {&buffers.inputs, &buffers.labels}) {
    for (int32_t id : *ids) {
      if (vocab_size <= 0 || id < vocab_size) continue;
      throw ValueError("the checkpoint's data loader state holds token id " + number(id) +
                           ", beyond the model's vocabulary of " + number(vocab_size),
                       kLeaveOut, ErrorCode::kOutOfBounds);
    }
  }
}

PackingBuffers share_of(std::span<const LoaderState> readers, int64_t rank, int64_t world) {
  const auto count = std::ssize(readers);
  const auto bound = [&](int64_t r) { return r * (count / world) + std::min(r, count % world); };
  std::vector<PackingBuffers> parts;
  for (int64_t i = bound(rank); i < bound(rank + 1); ++i)
    parts.push_back(readers[static_cast<size_t>(i)].buffers);
  return join_buffers(parts);
}

// The state of reader `rank` of `world` after `readers`.
LoaderState resharded(const DataShape& shape, std::span<const LoaderState> readers, int64_t rank,
                      int64_t world) {
  std::vector<OrderState> orders;
  int64_t num_batches = 0;
  for (const LoaderState& reader : readers) {
    orders.push_back(reader.order);
    num_batches = std::max(num_batches, reader.num_batches);
  }
  return {.order = reshard(shape, orders, world)[static_cast<size_t>(rank)],
          .buffers = share_of(readers, rank, world),
          .num_batches = num_batches};
}

}  // namespace

std::string Loader::titan_entry(const LoaderState& state, bool* is_exact) const {
  const std::optional<int64_t> read = documents_read(shape_, state.order, reader_rank_, reader_world_);
  *is_exact = read.has_value() && reader_world_ == options_.dp_world;
  TitanLoaderState titan{.buffers = state.buffers,
                         .sample_idx = 0,
                         .epoch = state.order.epoch,
                         .num_batches = state.num_batches,
                         .warnings = {}};
  if (*is_exact) {
    titan.sample_idx = *read;
  } else {
    // As far into the rank's own block as the rest that it has of this epoch leaves.
    int64_t whole = 0, left = 0;
    for (const Segment& s : epoch_segments(shape_, titan.epoch, options_.dp_rank, options_.dp_world))
      whole += s.size();
    for (const Segment& s : state.order.pending) left += s.epoch == titan.epoch ? s.size() : 0;
    if (reader_world_ != options_.dp_world) left /= options_.dp_world;
    titan.sample_idx = std::max<int64_t>(0, whole - left);
  }
  return write_titan_state(titan, options_.local_batch_size);
}

void Loader::restore(const SavedLoader& saved) {
  if (saved.ledger) return restore_ledger(*saved.ledger);
  if (saved.titan_entry || saved.titan_world_size) return restore_titan(saved);
  messages_.push_back({.is_warning = true,
                       .text = "DataLoader state is empty for dp rank " + number(options_.dp_rank) +
                               ", expected key " + entry_name(options_.dp_rank)});
}

void Loader::restore_ledger(const std::string& text) {
  Ledger ledger = read_ledger(text, kLedgerKey);
  const LedgerIdentity own = identity();
  check_same_data(ledger.identity, own);
  const auto num_readers = std::ssize(ledger.readers);
  LoaderState state = num_readers == reader_world_
                          ? std::move(ledger.readers[static_cast<size_t>(reader_rank_)])
                          : resharded(shape_, ledger.readers, reader_rank_, reader_world_);
  check_buffers(state.buffers, options_.model_vocab_size);
  if (num_readers != reader_world_) {
    messages_.push_back({.is_warning = true,
                         .text = "The data loader goes on with what " + number(num_readers) +
                                 " readers left, now on " + number(reader_world_) +
                                 "; until the next epoch TorchTitan's own entry can only say so roughly"});
  }
  set_state(std::move(state));
}

void Loader::restore_titan(const SavedLoader& saved) {
  const auto name_of = [](int64_t rank) { return "dataloader." + entry_name(rank); };
  const std::string name = name_of(options_.dp_rank);
  const int64_t world = saved.titan_world_size.value_or(options_.dp_world);
  if (world != options_.dp_world) {
    // Ranks that have an entry say the same as those that have none.
    const std::string missing =
        world < options_.dp_world ? " (entry '" + name_of(world) + "' is missing)" : "";
    throw ValueError("the checkpoint's data loader state is of data-parallel degree " + number(world) +
                         ", this run has " + number(options_.dp_world) + missing +
                         ", and TorchTitan's state cannot be split anew",
                     kLeaveOut);
  }
  if (!saved.titan_entry) {
    messages_.push_back({.is_warning = true,
                         .text = "DataLoader state is empty for dp rank " + number(options_.dp_rank) +
                                 ", expected key " + entry_name(options_.dp_rank)});
    return;
  }
  if (reader_world_ != options_.dp_world) {
    throw ValueError("the checkpoint's data loader state is TorchTitan's, of " + number(world) +
                         " ranks that read on their own, and dataloader.order is global",
                     std::string("use --dataloader.order=torchtitan, or ") + kLeaveOut);
  }
  TitanLoaderState titan = read_titan_state(*saved.titan_entry, name);
  std::optional<OrderState> order =
      order_after(shape_, titan.epoch, titan.sample_idx, reader_rank_, reader_world_);
  if (!order) {
    ValueError error("the checkpoint's data loader state has read " + number(titan.sample_idx) +
                         " documents, more than this rank has of data set " + describe_data(identity()),
                     kLeaveOut);
    error.set_key(name);
    throw error;
  }
  check_buffers(titan.buffers, options_.model_vocab_size);
  for (std::string& text : titan.warnings) messages_.push_back({.is_warning = true, .text = std::move(text)});
  set_state(
      {.order = std::move(*order), .buffers = std::move(titan.buffers), .num_batches = titan.num_batches});
}

}  // namespace milepost::data
