// Where a run computes.
#pragma once

#include <cstdint>
#include <string>

#include "train/torch.h"

namespace milepost::train {

// The device of a configuration's name: "cpu", "cuda", "cuda:1", another of libtorch's, or "auto", which is
// an accelerator where there is one. A name without a number is the device of number `index`. Throws
// ValueError for what is no name, for a kind that this libtorch was built without and for a number that the
// machine has not.
at::Device find_device(const std::string& name, int64_t index = 0);

// "CPU", "CUDA": as TorchTitan's log calls it.
std::string device_word(at::Device device);

// Threads that operations use: OMP_NUM_THREADS, else the processors that this process may run on. Sets and
// returns it. Throws ValueError for what is no number above 0.
int64_t set_threads();

// Floating-point operations a second that utilisation is measured against, and where they come from.
struct PeakFlops {
  double per_second = 0;
  std::string source;  // "NVIDIA H100", "matrix products of 1024 x 1024 in bfloat16"
};
// By the device's name where TorchTitan's table knows it; else measured, in about 50 ms.
PeakFlops peak_flops(at::Device device, at::ScalarType dtype);

// TorchTitan's table by the name of a device, for dense bfloat16; 0 for one that it does not know.
double listed_peak_flops(const std::string& device_name);

}  // namespace milepost::train
