// The screen at the end of a run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/run/estimate.h"
#include "train/run/metrics.h"
#include "train/run/phase_clock.h"

namespace milepost::train {

// What the steps of this process add up to.
struct RunTotals {
  int64_t first_step = 1;
  std::vector<double> losses;  // one a step
  Interval trained;  // without checkpoints and validation, and without the first step if others follow
  std::array<double, kNumPhases> phase_seconds = {};
  double seconds = 0;
  int64_t last_saved_step = -1;  // -1: none was saved

  void add(double loss, int64_t num_tokens, const PhaseClock& clock);
};

struct RunSummary {
  std::string title;  // of the model
  const RunTotals& totals;
  int64_t flops_per_token = 0, causal_flops_per_token = 0;
  double peak_flops = 0;
  std::string peak_source;
  int64_t peak_bytes = 0, start_bytes = 0;
  MemoryEstimate estimate;
  std::string checkpoint_folder;  // empty: no checkpoints
  std::string metrics_path;
};

// About 20 lines of at most 100 columns. Pure.
std::vector<std::string> summary_lines(const RunSummary& run, bool unicode);

// Whether the environment's locale writes UTF-8, or says nothing.
bool terminal_has_unicode();

}  // namespace milepost::train
