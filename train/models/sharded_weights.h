// Fully sharded parameters: each rank keeps a piece of every parameter, and a block's whole parameters exist
// only while the block runs (ZeRO stage 3, arXiv:1910.02054; the order of work is FSDP2's).
//
// Before a layer's forward pass the pieces of its parameters are cast to the compute dtype, packed into one
// buffer and gathered; meanwhile the layer before it computes. After the pass the whole parameters are
// dropped, and gathered again in front of the backward pass. A layer's gradients are packed in `reduce_dtype`
// and scattered to their owners with the sum over ranks (and over replicas), while the layer before it goes
// on backwards. At any time at most two layers' whole parameters and one layer's whole gradients exist.
//
// Over replicas the sums are taken by all of them alike, so that copies stay equal to the bit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/models/weights.h"
#include "train/parallel/buffer_pool.h"
#include "train/parallel/process_groups.h"

namespace milepost::train {

// Seconds that the step thread has waited for other ranks, since the last call of take_exposed().
struct ExposedTime {
  double gather = 0, scatter = 0;
};

class ShardedWeights final : public Weights {
 public:
  struct Options {
    at::ScalarType compute_dtype = at::kBFloat16, reduce_dtype = at::kFloat;
    bool reshard_after_forward = true;
  };
  // `groups` and `model` outlive it.
  ShardedWeights(ProcessGroups& groups, Model& model, const Options& options);
  ~ShardedWeights() override;

  std::vector<at::Tensor> materialize(const Block& block, at::TensorList locals) override;
  void release(const Block& block) override;
  void prepare_backward(const Block& block) override;
  void finish_backward() override;
  ExposedTime take_exposed();

 private:
  struct Gather;
  struct Sharded;
  struct Scatter;
  Sharded& find(const Block& block);
  std::vector<at::Tensor> make_whole(const Sharded& sharded);
  void start_gather(Sharded& sharded);
  void finish_gather(Sharded& sharded, const std::vector<at::Tensor>& whole);
  void start_scatter(Sharded& sharded, const std::vector<at::Tensor>& gradients);
  void finish_scatter();
  void prefetch(const Sharded& sharded);

  Group& shards_;
  Group& replicas_;
  Options options_;
  BufferPool pool_;
  std::vector<std::unique_ptr<Sharded>> sharded_;  // in forward order
  std::unique_ptr<Scatter> scatter_;               // the one under way
  bool is_backward_ = false;
  ExposedTime exposed_;
};

}  // namespace milepost::train
