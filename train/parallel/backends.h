// What carries collectives: c10d's Gloo for tensors in the memory of CPUs, its NCCL for those of CUDA
// devices.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace milepost::train {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// Connects `size` ranks, all of which call it with the same store; this one is the `index`th. They talk
// through the interface that GLOO_SOCKET_IFNAME names, else through that of the host's name. Throws what c10d
// throws.
BackendPtr connect_gloo(c10::intrusive_ptr<c10d::Store> store, int64_t index, int64_t size,
                        std::chrono::milliseconds timeout);

// Whether this build can use NCCL: libtorch was built with it, and its header was there.
bool has_nccl();
// As connect_gloo(); requires has_nccl(), and that the current device is this rank's.
BackendPtr connect_nccl(c10::intrusive_ptr<c10d::Store> store, int64_t index, int64_t size,
                        std::chrono::milliseconds timeout);

}  // namespace milepost::train
