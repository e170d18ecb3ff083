#include "milepost/data/document_order.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "milepost/data/numpy_random.h"

namespace milepost::data {
namespace {

constexpr uint64_t kShuffleSeed = 42;  // TorchTitan's; the epoch is added

int64_t total_size(std::span<const Segment> segments) {
  return std::accumulate(segments.begin(), segments.end(), int64_t{0},
                         [](int64_t sum, const Segment& s) { return sum + s.size(); });
}

std::vector<Segment> streaming_segments(const DataShape& shape, int64_t epoch, int64_t rank, int64_t world) {
  const auto num_files = static_cast<int64_t>(shape.file_documents.size());
  if (num_files == 0 || num_files % world != 0) {
    const int64_t count = (shape.num_documents - rank + world - 1) / world;
    if (count <= 0) return {};
    return {{.epoch = epoch, .first = rank, .stride = world, .count = count, .from = 0, .to = count}};
  }
  std::vector<Segment> segments;
  int64_t first = 0;
  for (int64_t file = 0; file < num_files; ++file) {
    const int64_t count = shape.file_documents[static_cast<size_t>(file)];
    if (file % world == rank && count > 0) {
      segments.push_back({.epoch = epoch, .first = first, .count = count, .from = 0, .to = count});
    }
    first += count;
  }
  return segments;
}

// Documents [skip, skip + length) of the segments' sequence.
std::vector<Segment> slice(std::span<const Segment> segments, int64_t skip, int64_t length) {
  std::vector<Segment> out;
  for (Segment segment : segments) {
    const int64_t dropped = std::min(skip, segment.size());
    skip -= dropped;
    segment.from += dropped;
    segment.to = segment.from + std::min(length, segment.size());
    length -= segment.size();
    if (segment.size() > 0) out.push_back(segment);
  }
  return out;
}

struct Block {
  int64_t first, count;
};

Block contiguous_block(int64_t n, int64_t rank, int64_t world) {
  const int64_t each = n / world, longer = n % world;
  return {rank * each + std::min(rank, longer), each + (rank < longer ? 1 : 0)};
}

}  // namespace

std::vector<Segment> epoch_segments(const DataShape& shape, int64_t epoch, int64_t rank, int64_t world) {
  assert(rank >= 0 && rank < world);
  if (shape.split == Split::kStreaming) return streaming_segments(shape, epoch, rank, world);
  const Block block = contiguous_block(shape.num_documents, rank, world);
  if (block.count == 0) return {};
  return {{.epoch = epoch,
           .first = block.first,
           .count = block.count,
           .shuffled = epoch > 0,
           .from = 0,
           .to = block.count}};
}

OrderState fresh_order(const DataShape& shape, int64_t rank, int64_t world) {
  return {.epoch = 0, .pending = epoch_segments(shape, 0, rank, world)};
}

std::optional<int64_t> documents_read(const DataShape& shape, const OrderState& state, int64_t rank,
                                      int64_t world) {
  const std::vector<Segment> all = epoch_segments(shape, state.epoch, rank, world);
  const int64_t num_read = total_size(all) - total_size(state.pending);
  if (num_read < 0 || slice(all, num_read, total_size(all)) != state.pending) return std::nullopt;
  return num_read;
}

std::optional<OrderState> order_after(const DataShape& shape, int64_t epoch, int64_t num_read, int64_t rank,
                                      int64_t world) {
  const std::vector<Segment> all = epoch_segments(shape, epoch, rank, world);
  const int64_t total = total_size(all);
  if (num_read < 0 || num_read > total) return std::nullopt;
  return OrderState{.epoch = epoch, .pending = slice(all, num_read, total)};
}

std::vector<OrderState> reshard(const DataShape& shape, std::span<const OrderState> old_states,
                                int64_t new_world) {
  const auto old_world = static_cast<int64_t>(old_states.size());
  int64_t last_epoch = 0;
  for (const OrderState& state : old_states) last_epoch = std::max(last_epoch, state.epoch);
  std::vector<Segment> left;
  for (int64_t rank = 0; rank < old_world; ++rank) {
    const OrderState& state = old_states[static_cast<size_t>(rank)];
    left.insert(left.end(), state.pending.begin(), state.pending.end());
    for (int64_t epoch = state.epoch + 1; epoch <= last_epoch; ++epoch) {
      const std::vector<Segment> whole = epoch_segments(shape, epoch, rank, old_world);
      left.insert(left.end(), whole.begin(), whole.end());
    }
  }
  std::stable_sort(left.begin(), left.end(),
                   [](const Segment& a, const Segment& b) { return a.epoch < b.epoch; });

  std::vector<OrderState> out(static_cast<size_t>(new_world), OrderState{.epoch = last_epoch, .pending = {}});
  for (auto begin = left.begin(); begin != left.end();) {
    const auto end =
        std::find_if(begin, left.end(), [&](const Segment& s) { return s.epoch != begin->epoch; });
    const std::span<const Segment> of_epoch(begin, end);
    const int64_t total = total_size(of_epoch);
    for (int64_t rank = 0; rank < new_world; ++rank) {
      const Block block = contiguous_block(total, rank, new_world);
      const std::vector<Segment> share = slice(of_epoch, block.first, block.count);
      std::vector<Segment>& pending = out[static_cast<size_t>(rank)].pending;
      pending.insert(pending.end(), share.begin(), share.end());
    }
    begin = end;
  }
  return out;
}

DocumentOrder::DocumentOrder(DataShape shape, int64_t rank, int64_t world, bool infinite)
    : shape_(std::move(shape)), rank_(rank), world_(world), infinite_(infinite) {
  state_ = fresh_order(shape_, rank, world);
}

void DocumentOrder::set_state(OrderState state) {
  state_ = std::move(state);
  permuted_ = {};
  permutation_.clear();
}

std::optional<int64_t> DocumentOrder::next() {
  if (state_.pending.empty()) {
    if (!infinite_) return std::nullopt;
    std::vector<Segment> whole = epoch_segments(shape_, state_.epoch + 1, rank_, world_);
    if (whole.empty()) return std::nullopt;
    ++state_.epoch;
    state_.pending = std::move(whole);
  }
  Segment& segment = state_.pending.front();
  const int64_t document = segment.first + segment.stride * document_at(segment.from);
  ++segment.from;
  if (segment.size() == 0) state_.pending.erase(state_.pending.begin());
  return document;
}

int64_t DocumentOrder::document_at(int64_t i) {
  const Segment& segment = state_.pending.front();
  if (!segment.shuffled) return i;
  if (permutation_.empty() || permuted_.epoch != segment.epoch || permuted_.count != segment.count) {
    permutation_ = numpy_permutation(kShuffleSeed + static_cast<uint64_t>(segment.epoch), segment.count);
    permuted_ = segment;
  }
  return permutation_[static_cast<size_t>(i)];
}

}  // namespace milepost::data
