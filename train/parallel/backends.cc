#include "train/parallel/backends.h"

#include <cstdlib>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef USE_C10D_NCCL  // cmake/MilepostTorch.cmake
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace milepost::train {

BackendPtr connect_gloo(c10::intrusive_ptr<c10d::Store> store, int64_t index, int64_t size,
                        std::chrono::milliseconds timeout) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(interface != nullptr && *interface != '\0'
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), static_cast<int>(index),
                                                     static_cast<int>(size), options);
}

#ifdef USE_C10D_NCCL
bool has_nccl() { return true; }

BackendPtr connect_nccl(c10::intrusive_ptr<c10d::Store> store, int64_t index, int64_t size,
                        std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), static_cast<int>(index),
                                                     static_cast<int>(size), options);
}
#else
bool has_nccl() { return false; }

BackendPtr connect_nccl(c10::intrusive_ptr<c10d::Store> /*store*/, int64_t /*index*/, int64_t /*size*/,
                        std::chrono::milliseconds /*timeout*/) {
  throw std::logic_error("this build has no NCCL");
}
#endif

}  // namespace milepost::train
