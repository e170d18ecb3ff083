#include "train/run/device.h"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

struct Listed {
  std::string_view words[2];  // all in the name; "" is in any
  double flops;
};
// The more special first.
constexpr Listed kListed[] = {
    {{"A100", ""}, 312e12},    {{"H100", "NVL"}, 835e12},  {{"H100", "PCIe"}, 756e12},
    {{"H100", ""}, 989e12},    {{"H200", ""}, 989e12},     {{"H20", ""}, 148e12},
    {{"GB200", ""}, 2.5e15},   {{"GB300", ""}, 2.5e15},    {{"B200", ""}, 2.25e15},
    {{"B300", ""}, 2.25e15},   {{"MI300X", ""}, 1300e12},  {{"MI325X", ""}, 1300e12},
    {{"MI355X", ""}, 2500e12}, {{"MI250X", ""}, 191.5e12}, {{"A6000", ""}, 154.85e12},
};

// What the driver calls the first card; there is no such question in libtorch that all its builds can answer.
std::string nvidia_name() {
  std::error_code code;
  for (const auto& card : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", code)) {
    std::ifstream information(card.path() / "information");
    for (std::string line; std::getline(information, line);) {
      if (!line.starts_with("Model:")) continue;
      const size_t name = line.find_first_not_of(" \t", 6);
      return name == line.npos ? std::string() : line.substr(name);
    }
  }
  return {};
}

double measured_flops(at::Device device, at::ScalarType dtype) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSize = 1024;
  const at::NoGradGuard no_grad;
  const auto a = at::ones({kSize, kSize}, at::device(device).dtype(dtype));
  double best = 0;
  const auto start = Clock::now();
  for (int i = 0; i < 3 || (i < 20 && Clock::now() - start < std::chrono::milliseconds(50)); ++i) {
    const auto begin = Clock::now();
    const auto product = at::mm(a, a);
    if (!device.is_cpu()) product[0][0].item();  // waits for the device
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 2.0 * kSize * kSize * kSize / std::max(seconds, 1e-9));
  }
  return best;
}

at::Device parse_device(const std::string& name) {
  try {
    return at::Device(name);
  } catch (const c10::Error&) {
    throw ValueError(fmt::format("device '{}' is not the name of a device", printable(name)),
                     "give cpu, cuda, cuda:N or auto");
  }
}

}  // namespace

at::Device find_device(const std::string& name, int64_t index) {
  const std::optional<at::DeviceType> accelerator = at::getAccelerator(/*checked=*/false);
  const at::DeviceIndex count = accelerator ? at::accelerator::deviceCount() : at::DeviceIndex{0};
  if (name == "auto" && count == 0) return at::kCPU;
  const at::Device device = name == "auto" ? at::Device(*accelerator) : parse_device(name);
  if (device.is_cpu()) return at::kCPU;
  if (!accelerator || *accelerator != device.type()) {
    throw ValueError(fmt::format("device {}: this libtorch is built without it", name),
                     "install a torch wheel with it into .venv and build again, or use --device cpu");
  }
  if (device.has_index()) index = device.index();
  if (index >= count) {
    throw ValueError(fmt::format("device {}: this machine has {} of them", name, static_cast<int>(count)),
                     "use one that there is, or --device cpu");
  }
  return {device.type(), static_cast<at::DeviceIndex>(index)};
}

std::string device_word(at::Device device) { return c10::DeviceTypeName(device.type()); }

int64_t set_threads() {
  int64_t threads = 0;
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr && *text != '\0') {
    const std::string_view digits(text);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), threads);
    // A list, as OpenMP allows, names the number of the outermost level first.
    const bool is_number = error == std::errc() && (end == digits.data() + digits.size() || *end == ',');
    if (!is_number || threads < 1 || threads > 1024) {
      throw ValueError(
          fmt::format("OMP_NUM_THREADS must be a number from 1 to 1024, got '{}'", printable(digits)));
    }
  } else {
    cpu_set_t processors;
    CPU_ZERO(&processors);
    const bool is_known = ::sched_getaffinity(0, sizeof processors, &processors) == 0;
    threads = is_known ? std::max(1, CPU_COUNT(&processors)) : 1;
  }
  at::set_num_threads(static_cast<int>(threads));
  return threads;
}

double listed_peak_flops(const std::string& device_name) {
  for (const Listed& listed : kListed) {
    const auto has = [&](std::string_view word) { return device_name.find(word) != device_name.npos; };
    if (has(listed.words[0]) && has(listed.words[1])) return listed.flops;
  }
  return 0;
}

PeakFlops peak_flops(at::Device device, at::ScalarType dtype) {
  if (device.is_cuda()) {
    const std::string name = nvidia_name();
    if (const double listed = listed_peak_flops(name); listed > 0) return {listed, name};
  }
  return {measured_flops(device, dtype), fmt::format("measured here: matrix products of 1024 x 1024 in {}",
                                                     dtype == at::kBFloat16 ? "bfloat16" : "float32")};
}

}  // namespace milepost::train
