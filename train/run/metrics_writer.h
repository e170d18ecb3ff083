// Metrics in files of the dump folder:
//
//   metrics.jsonl                      a JSON object for each step and each validation, appended; where a
//   resumed
//                                      run does a step again, the later line counts
//   {save_tb_folder}/YYYYMMDD-HHMM/    TensorBoard's event files, where they are asked for: steps that are
//   logged
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "milepost/config/sections.h"
#include "train/models/sharded_weights.h"
#include "train/run/event_file.h"
#include "train/run/metrics.h"
#include "train/run/phase_clock.h"

namespace milepost::train {

// Everything that is known of a step when it ends.
struct StepRecord {
  StepFigures figures;  // its rates are those of this step alone, without checkpoint and validation
  int64_t num_tokens = 0, num_tokens_seen = 0;
  std::vector<std::pair<std::string, double>> learning_rates;  // "lr/AdamW"
  std::optional<double> aux_loss;                              // mean over layers, where there is one
  std::optional<ExposedTime> exposed;                          // waiting for other ranks, where there are any
};

// As a line of metrics.jsonl, without the line feed; numbers that are not finite are null.
std::string step_json(const StepRecord& record, const PhaseClock& clock);
std::string validation_json(const StepFigures& figures, double seconds);
// TensorBoard's scalars, with TorchTitan's tags.
std::vector<Scalar> step_scalars(const StepRecord& record, const Interval& interval, int64_t log_freq,
                                 int64_t num_data_loads);
std::vector<Scalar> validation_scalars(const StepFigures& figures);

// One thread. All calls throw StorageError.
class MetricsWriter {
 public:
  MetricsWriter(const config::Metrics& options, const std::string& dump_folder);

  void write_json(const std::string& line);
  void write_scalars(int64_t step, const std::vector<Scalar>& scalars);  // nothing without TensorBoard

 private:
  std::string path_;
  std::ofstream json_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace milepost::train
