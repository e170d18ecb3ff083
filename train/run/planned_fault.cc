#include "train/run/planned_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "milepost/base/error.h"
#include "train/run/phase_clock.h"

namespace milepost::train {
namespace {

constexpr const char* kName = "MILEPOST_FAULT";

struct What {
  std::string_view name;
  int signal;
};
constexpr What kWhats[] = {{"kill", SIGKILL}, {"stop", SIGSTOP}, {"throw", 0}};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ':') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

std::optional<int64_t> number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<PlannedFault> PlannedFault::from_environment(int64_t rank) {
  const char* text = std::getenv(kName);
  if (text == nullptr || *text == '\0') return std::nullopt;
  std::vector<std::string> parts = split(text);
  parts.resize(4);
  const auto its_rank = number(parts[0]), step = number(parts[1]);
  const bool is_phase =
      std::find(std::begin(kPhaseNames), std::end(kPhaseNames), parts[2]) != std::end(kPhaseNames);
  const auto* what = std::find_if(std::begin(kWhats), std::end(kWhats),
                                  [&](const What& known) { return known.name == parts[3]; });
  if (!its_rank || !step || !is_phase || what == std::end(kWhats)) {
    throw ValueError(fmt::format("{} is no fault: '{}'", kName, printable(text)),
                     "give RANK:STEP:PHASE:WHAT, such as 1:5:backward:kill (or stop, throw)");
  }
  if (*its_rank != rank) return std::nullopt;
  PlannedFault fault;
  fault.step_ = *step;
  fault.phase_ = parts[2];
  fault.signal_ = what->signal;
  return fault;
}

void PlannedFault::begin(int64_t step, std::string_view phase) const {
  if (step != step_ || phase != phase_) return;
  if (signal_ == 0) throw std::runtime_error(fmt::format("a fault that {} asks for", kName));
  std::raise(signal_);
}

}  // namespace milepost::train
