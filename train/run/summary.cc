#include "train/run/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "train/run/loss_plot.h"

namespace milepost::train {
namespace {

std::string row(const char* name, const std::string& text) { return fmt::format("  {:<12}{}", name, text); }

std::string speed(const RunSummary& run) {
  const Rates by_titan = rates(run.totals.trained, run.flops_per_token, run.peak_flops);
  const Rates causal = rates(run.totals.trained, run.causal_flops_per_token, run.peak_flops);
  return fmt::format(
      "{} tokens/s, {:.3f} TFLOP/s of causal attention and products ({:.3f} by TorchTitan's count)",
      with_commas(static_cast<int64_t>(by_titan.tokens_per_second)), causal.tflops, by_titan.tflops);
}

std::string utilisation(const RunSummary& run) {
  const Rates causal = rates(run.totals.trained, run.causal_flops_per_token, run.peak_flops);
  return fmt::format("{:.1f} % of {:.3f} TFLOP/s ({})", causal.mfu_percent, run.peak_flops / 1e12,
                     run.peak_source);
}

std::string times(const RunSummary& run) {
  std::string text;
  double known = 0;
  const auto add = [&](std::string_view name, double seconds) {
    const double percent = 100 * seconds / std::max(run.totals.seconds, 1e-9);
    if (percent >= 0.05) text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", name, percent);
  };
  for (size_t i = 0; i < kNumPhases; ++i) {
    add(kPhaseNames[i], run.totals.phase_seconds[i]);
    known += run.totals.phase_seconds[i];
  }
  add("other", run.totals.seconds - known);
  return text;
}

std::string checkpoints(const RunSummary& run) {
  if (run.checkpoint_folder.empty()) return "none (--checkpoint.enable saves them)";
  if (run.totals.last_saved_step < 0) return run.checkpoint_folder + " (none was saved)";
  return fmt::format("{}, the last is step-{}", run.checkpoint_folder, run.totals.last_saved_step);
}

}  // namespace

void RunTotals::add(double loss, int64_t num_tokens, const PhaseClock& clock) {
  // The first step makes what later ones find: moments, buffers, the pages of both.
  if (losses.size() == 1) trained = {};
  losses.push_back(loss);
  trained.num_tokens += num_tokens;
  trained.num_steps += 1;
  trained.seconds += clock.training_seconds();
  for (size_t i = 0; i < kNumPhases; ++i) phase_seconds[i] += clock.seconds(static_cast<Phase>(i));
  seconds += clock.total_seconds();
}

std::vector<std::string> summary_lines(const RunSummary& run, bool unicode) {
  const RunTotals& totals = run.totals;
  const auto num_steps = static_cast<int64_t>(totals.losses.size());
  std::vector<std::string> lines = {
      fmt::format("{}: {} steps in {:.1f} s", run.title, num_steps, run.totals.seconds)};
  for (const std::string& line : plot(totals.losses, totals.first_step, {.unicode = unicode}))
    lines.push_back("  " + line);
  if (num_steps > 0) {
    lines.push_back(
        row("loss", fmt::format("{:.5f} at step {}, {:.5f} at step {}", totals.losses.front(),
                                totals.first_step, totals.losses.back(), totals.first_step + num_steps - 1)));
    lines.push_back(row("speed", speed(run)));
    if (run.peak_flops > 0) lines.push_back(row("utilisation", utilisation(run)));
    lines.push_back(row("time", times(run)));
  }
  lines.push_back(row("memory", fmt::format("{:.2f} GiB at most above the {:.2f} at the start",
                                            gib(run.peak_bytes - run.start_bytes), gib(run.start_bytes))));
  lines.push_back(row("", "expected: " + memory_text(run.estimate)));
  lines.push_back(row("checkpoints", checkpoints(run)));
  lines.push_back(row("metrics", run.metrics_path));
  return lines;
}

bool terminal_has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale(value);
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return true;
}

}  // namespace milepost::train
