// Collectives between the ranks of a group, over c10d.
//
// Every collective has a form that returns at once with a Pending to wait for; the tensors belong to the
// operation until then. Reductions add in rank order, so that results do not depend on timing, on the
// backend's algorithm or on which rank looks: equal bits on every rank and in every run.
//
// Threads: one thread issues a group's collectives, in the same order on all its ranks. Errors: a peer that
// is gone, a time-out or a collective that other ranks do not take part in is a CommunicationError from
// wait(), naming the operation, the group and the peer where known; the group is of no use afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/base/error.h"
#include "train/torch.h"

namespace milepost::train {

class CommunicationError : public Error {
 public:
  explicit CommunicationError(std::string what_happened, std::string hint = {},
                              std::vector<int64_t> ranks = {})
      : Error(ErrorCode::kIo, std::move(what_happened), std::move(hint)), ranks_(std::move(ranks)) {}
  // The job's ranks that took part, or should have; none where it was no operation of a group.
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  std::vector<int64_t> ranks_;
};

// An operation under way. Dropping one that was not waited for leaves its tensors in use: wait first.
class Pending {
 public:
  virtual ~Pending() = default;
  // Blocks until the operation is done. Once only. Throws CommunicationError.
  virtual void wait() = 0;
};
using PendingPtr = std::unique_ptr<Pending>;

class Group {
 public:
  virtual ~Group() = default;
  // "fsdp", and the job's ranks that belong to it, in order.
  const std::string& name() const { return name_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  // This process's index in ranks().
  int64_t index() const { return index_; }

  // Moves bytes: `send` of every rank to every rank, in index order. `receive` holds size() times the bytes
  // of `send`. Both contiguous, on this group's device.
  virtual PendingPtr all_gather(const at::Tensor& receive, const at::Tensor& send) = 0;
  // Piece j of `send` (dimension 0, send_sizes[j] rows) to rank j; piece j of `receive` from rank j.
  virtual PendingPtr all_to_all(const at::Tensor& receive, const std::vector<int64_t>& receive_sizes,
                                const at::Tensor& send, const std::vector<int64_t>& send_sizes) = 0;
  virtual PendingPtr broadcast(const at::Tensor& tensor, int64_t root_index) = 0;
  // All ranks have come here.
  virtual void barrier() = 0;
  // The longest wait of operations from now on.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

 protected:
  Group(std::string name, std::vector<int64_t> ranks, int64_t index)
      : name_(std::move(name)), ranks_(std::move(ranks)), index_(index) {}

 private:
  std::string name_;
  std::vector<int64_t> ranks_;
  int64_t index_;
};

enum class Reduction : uint8_t { kSum, kMax };

// `send`: size() pieces of equal length one after the other; `receive`: the sum over ranks of this rank's
// piece, in `send`'s dtype; sums of bfloat16 are taken in float32. Waiting does the adding. `pieces`, of the
// size and dtype of `send`, is what all ranks send of this rank's piece meanwhile.
PendingPtr reduce_scatter(Group& group, const at::Tensor& receive, const at::Tensor& send,
                          const at::Tensor& pieces);
PendingPtr reduce_scatter(Group& group, const at::Tensor& receive, const at::Tensor& send);
// In place. Blocks.
void all_reduce(Group& group, const at::Tensor& tensor, Reduction reduction = Reduction::kSum);
double all_reduce(Group& group, double value, Reduction reduction = Reduction::kSum);
// Byte strings of every rank, in index order. Blocks.
std::vector<std::string> all_gather_strings(Group& group, const std::string& value);
// The root's string, everywhere. Blocks.
std::string broadcast_string(Group& group, const std::string& value, int64_t root_index);

// A group of one: nothing is sent.
std::unique_ptr<Group> make_single_group(std::string name, int64_t rank);
// A group that sends nothing and receives nothing: receive buffers keep what they hold, where a real one
// would fill them. For checking a configuration on one machine.
std::unique_ptr<Group> make_fake_group(std::string name, std::vector<int64_t> ranks, int64_t index);

}  // namespace milepost::train
