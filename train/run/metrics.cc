#include "train/run/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace milepost::train {
namespace {

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void put_commas(std::string* digits) {
  const auto first = static_cast<int64_t>(digits->find_first_of("0123456789"));
  for (int64_t at = static_cast<int64_t>(digits->size()) - 3; at > first; at -= 3) {
    digits->insert(static_cast<size_t>(at), 1, ',');
  }
}

std::string memory_text(const MemoryUse& memory) {
  return fmt::format("memory: {:5.2f}GiB({:.2f}%)", gib(memory.reserved_bytes), memory.reserved_percent());
}

std::string speed_text(const Rates& rates) {
  return "tps: " + with_commas(static_cast<int64_t>(std::nearbyint(rates.tokens_per_second)));
}

}  // namespace

Colors Colors::terminal() {
  return {"\x1b[31m", "\x1b[32m", "\x1b[38;2;180;60;0m", "\x1b[38;2;54;234;195m", "\x1b[34m", "\x1b[36m",
          "\x1b[35m", "\x1b[39m"};
}

MemoryUse& MemoryUse::join(const MemoryUse& other) {
  active_bytes = std::max(active_bytes, other.active_bytes);
  reserved_bytes = std::max(reserved_bytes, other.reserved_bytes);
  total_bytes = other.total_bytes;
  num_retries += other.num_retries;
  num_failures += other.num_failures;
  return *this;
}

double MemoryUse::active_percent() const { return percent(active_bytes, total_bytes); }
double MemoryUse::reserved_percent() const { return percent(reserved_bytes, total_bytes); }

Rates rates(const Interval& interval, int64_t flops_per_token, double peak_flops) {
  const double tps = static_cast<double>(interval.num_tokens) / std::max(interval.seconds, 1e-9);
  const double flops = static_cast<double>(flops_per_token) * tps;
  return {tps, flops / 1e12, peak_flops > 0 ? 100 * flops / peak_flops : 0};
}

std::string step_line(const StepFigures& f, const Colors& c) {
  return fmt::format(
      "{}step: {:2}  {}loss: {:8.5f}  {}grad_norm: {:7.4f}  {}{}  {}{}  {}tflops: {}  {}mfu: "
      "{:.2f}%{}",
      c.red, f.step, c.green, f.loss, c.orange, f.grad_norm, c.turquoise, memory_text(f.memory), c.blue,
      speed_text(f.rates), c.cyan, with_commas(f.rates.tflops, 2), c.magenta, f.rates.mfu_percent, c.reset);
}

std::string validation_line(const StepFigures& f, const Colors& c) {
  return fmt::format("{}validate step: {:2}  {}loss: {:7.4f}  {}{}  {}{}{}", c.red, f.step, c.green, f.loss,
                     c.turquoise, memory_text(f.memory), c.blue, speed_text(f.rates), c.reset);
}

std::string with_commas(int64_t number) {
  std::string digits = fmt::format("{}", number);
  put_commas(&digits);
  return digits;
}

std::string with_commas(double number, int num_decimals) {
  std::string text = fmt::format("{:.{}f}", number, num_decimals);
  if (!std::isfinite(number)) return text;
  const size_t point = std::min(text.find('.'), text.size());
  std::string whole = text.substr(0, point);
  put_commas(&whole);
  return whole + text.substr(point);
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace milepost::train
