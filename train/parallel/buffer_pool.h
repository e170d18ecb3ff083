// Buffers of a block's size that come and go in every step.
//
// From the heap they would leave holes between activations, which then hold memory that nothing uses: more
// than the buffers themselves. So they are mapped apart from it, and one that is given back waits for the
// next that fits, since pages from the system are slow to touch for the first time.
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
