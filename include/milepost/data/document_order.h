// DocumentOrder: which documents a data-parallel rank reads, in which order, epoch after epoch.
//
// A data set of n documents is split over W ranks without communication; what is left to read is described by
// a few `Segment`s, however large n is. So a state is small, and what several ranks have not read yet can be
// split again over any number of ranks (`reshard`), each document once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace milepost::data {

enum class Split : uint8_t {
  // Contiguous blocks, the first n mod W one longer; from epoch 1 on each rank's block is shuffled
  // (`numpy.random.default_rng(42 + epoch).permutation`).
  kMapStyle,
  // As a stream of files: rank r reads files r, r + W, ... when W divides their number, else every W-th
  // document from r on. Never shuffled.
  kStreaming,
};

struct DataShape {
  int64_t num_documents = 0;
  std::vector<int64_t> file_documents;  // of each file; needed by kStreaming
  Split split = Split::kMapStyle;
};

// Documents first + stride * p(i) for i in [from, to), where p is the epoch's permutation of [0, count), or
// the identity when not shuffled.
struct Segment {
  int64_t epoch = 0;
  int64_t first = 0, stride = 1, count = 0;
  bool shuffled = false;
  int64_t from = 0, to = 0;
  int64_t size() const { return to - from; }
  bool operator==(const Segment&) const = default;
};

// All that `rank` of `world` reads in `epoch`; empty segments are left out. Requires 0 <= rank < world.
std::vector<Segment> epoch_segments(const DataShape& shape, int64_t epoch, int64_t rank, int64_t world);

// What one rank has still to read: `pending` first, by ascending epochs up to `epoch`, then whole epochs from
// `epoch` + 1 on.
struct OrderState {
  int64_t epoch = 0;
  std::vector<Segment> pending;
  bool operator==(const OrderState&) const = default;
};

OrderState fresh_order(const DataShape& shape, int64_t rank, int64_t world);

// Documents of the epoch that are read, when the state is one that a rank which never was resharded can be
// in; else nullopt.
std::optional<int64_t> documents_read(const DataShape& shape, const OrderState& state, int64_t rank,
                                      int64_t world);
// The state after `num_read` documents of `epoch`; nullopt when the rank has fewer.
std::optional<OrderState> order_after(const DataShape& shape, int64_t epoch, int64_t num_read, int64_t rank,
                                      int64_t world);

// Splits what the ranks `old_states` have left over `new_world` ranks: per epoch, in order of old ranks,
// contiguously. Ranks may be in different epochs: those behind give their whole blocks of later ones too, so
// that afterwards every document has been read equally often when all are through.
std::vector<OrderState> reshard(const DataShape& shape, std::span<const OrderState> old_states,
                                int64_t new_world);

// Threads: one. Memory: 8 bytes for each document of the segment being read when that is shuffled.
class DocumentOrder {
 public:
  DocumentOrder(DataShape shape, int64_t rank, int64_t world, bool infinite);

  // The next document, or nullopt when a finite order has come to its end. Starting over raises
  // state().epoch. An infinite order over no documents gives nullopt too.
  std::optional<int64_t> next();

  const OrderState& state() const { return state_; }
  void set_state(OrderState state);

 private:
  int64_t document_at(int64_t i);

  DataShape shape_;
  int64_t rank_, world_;
  bool infinite_;
  OrderState state_;
  Segment permuted_;  // which segment `permutation_` is of
  std::vector<int64_t> permutation_;
};

}  // namespace milepost::data
