// Buffers of a block's size that come and go in every step.
//
// Among the other large tensors (train/run/block_cache.h) they would raise what is kept for those: four ranks
// then hold 1.27 times what their shards, two blocks and activations take, and 1.05 times with a pool of
// their own, at the same speed. One that is given back waits for the next that fits.
//
// Threads: any; a buffer may outlive its pool. On other devices than CPUs the device's allocator does this.
#pragma once

#include <cstdint>
#include <memory>

#include "train/torch.h"

namespace milepost::train {

class BufferPool {
 public:
  BufferPool();

  // Memory for `bytes`, whose contents are undefined; it comes back when the pointer goes. Throws
  // std::bad_alloc.
  at::DataPtr take(int64_t bytes, at::Device device);
  // A contiguous tensor of such memory.
  at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options);

 private:
  struct Free;
  std::shared_ptr<Free> free_;  // shared with buffers in use
};

}  // namespace milepost::train
