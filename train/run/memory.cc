#include "train/run/memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace milepost::train {
namespace {

// A line "VmHWM:   12345 kB" of /proc/self/status, in bytes; 0 where there is none.
int64_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name)) continue;
    const size_t digit = line.find_first_of("0123456789");
    if (digit == line.npos) return 0;
    int64_t kib = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

void reset_peak_resident() {
  const int file = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(file, "5", 1);
  ::close(file);
}

MemoryUse host_use() {
  const int64_t peak = peak_resident_bytes();
  reset_peak_resident();
  return {peak, peak, machine_bytes()};
}

MemoryUse device_use(at::Device device) {
  auto* allocator = at::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  MemoryUse use;
  use.active_bytes = stats.active_bytes[0].peak;
  use.reserved_bytes = stats.reserved_bytes[0].peak;
  use.total_bytes = static_cast<int64_t>(allocator->getMemoryInfo(device.index()).second);
  use.num_retries = stats.num_alloc_retries;
  use.num_failures = stats.num_ooms;
  allocator->resetPeakStats(device.index());
  return use;
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS:"); }
int64_t peak_resident_bytes() { return std::max(status_bytes("VmHWM:"), resident_bytes()); }
int64_t machine_bytes() { return int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE); }

MemoryMeter::MemoryMeter(at::Device device) : device_(device) {}

MemoryUse MemoryMeter::take_peak() {
  const MemoryUse use = device_.is_cpu() ? host_use() : device_use(device_);
  most_bytes_ = std::max(most_bytes_, use.reserved_bytes);
  return use;
}

}  // namespace milepost::train
