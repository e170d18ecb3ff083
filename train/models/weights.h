// Where the whole parameters of a block come from, in the dtype that a forward pass computes in.
#pragma once

#include <memory>
#include <vector>

#include "train/models/model.h"

namespace milepost::train {

class Weights {
 public:
  virtual ~Weights() = default;
  // The block's trainable parameters, whole, in the compute dtype. `locals`: their local tensors in the same
  // order, or leaves of another graph that stand for them; gradients reach them, or Parameter::local's
  // gradients by finish_backward().
  virtual std::vector<at::Tensor> materialize(const Block& block, at::TensorList locals) = 0;
  // The block's forward pass is over; its backward pass comes later, after prepare_backward().
  virtual void release(const Block& /*block*/) {}
  virtual void prepare_backward(const Block& /*block*/) {}
  // All gradients of the passes so far are in Parameter::local's gradients when this returns.
  virtual void finish_backward() {}
};

// Runs blocks with these weights, recomputing as asked (see make_local_execution).
std::unique_ptr<Execution> make_execution(std::unique_ptr<Weights> weights,
                                          const config::ActivationCheckpoint& recompute);

}  // namespace milepost::train
