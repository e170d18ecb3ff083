#include "progress_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "units.h"

namespace milepost::cli {
namespace {

constexpr auto kSampleTime = std::chrono::milliseconds(20);
constexpr int kSamplesABar = 5;
constexpr int kBarWidth = 24;

int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("RssAnon:")) continue;
    const size_t digits = line.find_first_of("0123456789");
    int64_t kib = 0;
    if (digits != std::string::npos) std::from_chars(line.data() + digits, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

}  // namespace

std::string progress_line(std::string_view label, int64_t done, int64_t total, double seconds, int columns) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string line = fmt::format("{}  ", label);
  if (total > 0) {
    const double part = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
    const int filled = static_cast<int>(part * kBarWidth);
    line += fmt::format("[{:=<{}}{:<{}}]  {:3.0f} %  {} of {}", "", filled, filled < kBarWidth ? ">" : "",
                        kBarWidth - filled, part * 100, bytes_text(done), bytes_text(total));
  } else {
    line += bytes_text(done);
  }
  if (rate > 0) {
    line += fmt::format("  {}/s", bytes_text(static_cast<int64_t>(rate)));
    if (total > done)
      line += fmt::format("  {} left", seconds_text(static_cast<double>(total - done) / rate));
  }
  if (columns > 0 && line.size() >= static_cast<size_t>(columns))
    line.resize(static_cast<size_t>(columns) - 1);
  return line;
}

ProgressMeter::ProgressMeter(const Terminal& terminal, std::string label)
    : terminal_(terminal), label_(std::move(label)), interrupt_(progress_), thread_([this] { watch(); }) {}

ProgressMeter::~ProgressMeter() { finish(); }

void ProgressMeter::finish() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  sample_memory();
}

int64_t ProgressMeter::peak_anonymous_bytes() {
  sample_memory();
  std::lock_guard lock(mutex_);
  return peak_bytes_;
}

void ProgressMeter::sample_memory() {
  const int64_t now = anonymous_bytes();
  std::lock_guard lock(mutex_);
  peak_bytes_ = std::max(peak_bytes_, now);
}

void ProgressMeter::watch() {
  const auto start = std::chrono::steady_clock::now();
  bool drawn = false;
  for (int sample = 1;; ++sample) {
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, kSampleTime, [this] { return stopping_; })) break;
    }
    sample_memory();
    if (!terminal_.shows_bars() || sample % kSamplesABar != 0) continue;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print(stderr, "\r{}\x1b[K",
               progress_line(label_, progress_.done_bytes, progress_.total_bytes, seconds.count(),
                             terminal_.columns()));
    std::fflush(stderr);
    drawn = true;
  }
  if (drawn) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace milepost::cli
