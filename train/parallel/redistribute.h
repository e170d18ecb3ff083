// Moves a tensor from one way of lying on the ranks of a group to another, in one mesh dimension.
//
//   from \ to     kReplicate          kShard                    kPartial
//   kReplicate    -                   slice                     first rank keeps it, the others have zeros
//   kShard        all-gather          all-to-all (other dim)    own rows among zeros
//   kPartial      all-reduce          reduce-scatter            -
//
// Differentiable, for losses that add up over ranks: the gradient of what all ranks have alike comes in parts
// to be summed, the gradient of parts to be summed is the same for all, a shard's is its shard's. So each
// move runs backwards as the move between these: an all-gather as a reduce-scatter, a slice as rows among
// zeros. Sums are taken in rank order (collectives.h).
//
// Over several mesh dimensions: one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/parallel/collectives.h"

namespace milepost::train {

// How a tensor lies on the ranks of a group: whole on each; cut along `dim` by torch.chunk's rule (ranks may
// have fewer rows, or none); or as tensors of the whole shape that add up to it.
struct Spread {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };
  Kind kind = Kind::kReplicate;
  int64_t dim = 0;

  static Spread replicate() { return {}; }
  static Spread shard(int64_t dim) { return {Kind::kShard, dim}; }
  static Spread partial() { return {Kind::kPartial, 0}; }
  friend bool operator==(const Spread&, const Spread&) = default;
};

// The rows [begin, begin + count) of `size` that rank `index` of `num_ranks` has.
struct ShardRows {
  int64_t begin = 0, count = 0;
};
ShardRows shard_rows(int64_t size, int64_t num_ranks, int64_t index);
// The shape of this rank's part.
std::vector<int64_t> local_shape(at::IntArrayRef shape, Spread spread, const Group& group);

// `local`: this rank's part of a tensor of `shape`, whose spread is `from`. Every rank of the group calls it
// with the same shape and spreads. Throws ValueError: `local` has not the shape of its part, or a dimension
// is none of the tensor's; CommunicationError.
at::Tensor redistribute(const at::Tensor& local, at::IntArrayRef shape, Spread from, Spread to, Group& group);

// A move under way: the transfer has been started, wait() gives the result. Not differentiable. `local` may
// not change before.
class Redistribution {
 public:
  // Once only.
  at::Tensor wait();

 private:
  friend Redistribution start_redistribute(const at::Tensor&, at::IntArrayRef, Spread, Spread, Group&);
  PendingPtr transfer_;  // null where nothing is sent
  std::function<at::Tensor()> finish_;
};
Redistribution start_redistribute(const at::Tensor& local, at::IntArrayRef shape, Spread from, Spread to,
                                  Group& group);

}  // namespace milepost::train
