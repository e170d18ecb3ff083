#include "train/run/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

namespace milepost::train {
namespace {

constexpr const char* kNames[] = {"INFO", "WARNING", "ERROR"};

}  // namespace

void log(LogLevel level, std::string_view text) {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  const std::string line = fmt::format("[milepost] {:%Y-%m-%d %H:%M:%S},{:03} - root - {} - {}\n", local, ms,
                                       kNames[static_cast<size_t>(level)], text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace milepost::train
