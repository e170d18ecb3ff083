// A training run, from a configuration to its last step (spec training, sections 1, 2 and 13 to 15).
//
//   Trainer trainer(config);              everything that can be refused is refused here, before anything is
//   RunEnd end = trainer.train();         loads, trains, saves, and tells the log
//
// Threads: one calls. The data loader reads ahead, saves are written and signals and other ranks' failures
// are watched in threads of their own; operations use ATen's. While it lives it takes the signals of
// stop_signals.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/config/trainer.h"
#include "milepost/data/prefetch.h"
#include "train/models/model.h"
#include "train/models/sharded_weights.h"
#include "train/optim/ema.h"
#include "train/optim/optimizer.h"
#include "train/parallel/failure_board.h"
#include "train/run/device.h"
#include "train/run/grace_period.h"
#include "train/run/memory.h"
#include "train/run/metrics.h"
#include "train/run/metrics_writer.h"
#include "train/run/phase_clock.h"
#include "train/run/run_data.h"
#include "train/run/stop_point.h"
#include "train/run/summary.h"
#include "train/run/trace_profiler.h"
#include "train/run/training.h"
#include "train/run/validator.h"
#include "train/state/checkpointer.h"
#include "train/state/job.h"
#include "train/state/together.h"

namespace milepost::train {

class Trainer {
 public:
  // Builds everything in TorchTitan's order. Throws ValueError for settings that cannot stand, StorageError
  // for a dump folder that cannot be written and data that cannot be read.
  explicit Trainer(const config::Trainer& config);
  ~Trainer();

  // Until training.steps, the end of the data, or a signal. Throws NonFiniteError, and what data, operations
  // and storage throw.
  RunEnd train();
  // Saves the starting values as step 0, with the configuration that config_of_seed() makes (run_checks.h).
  void save_seed();
  // What debug.prove_resume asks for, with the configuration that config_of_proof() makes (prove_resume.h).
  // Returns the first difference that it finds; empty: there is none.
  std::string prove_resume();

 private:
  void build_model_parts();
  void build_optimizer();
  void open_data();
  void log_start() const;
  Job job();

  bool is_alone() const { return mesh_.degrees().world_size() == 1; }
  // Those that a sum or a decision goes over; null with one process.
  Group* ranks(const char* dimension) { return is_alone() ? nullptr : &groups_->group(dimension); }
  // Of several ranks, one that fails says so where all can read it; the others say why they end.
  void report_failure(const std::exception& error);
  std::string place() const;  // "Rank 1 on node2 failed at step 12 in backward"
  RunEnd run_steps();
  void join_job();
  void build();
  void make_execution_of_model();

  std::string resume_and_compare(const Together& ranks);
  std::vector<StepRecord> steps_until(int64_t last);
  void forget();  // all but the ranks; for build() to make anew

  bool train_step();  // up to the optimizer; false: the data ran out
  bool read_batches(std::vector<data::Batch>* batches);
  double forward_backward(data::Batch& batch, int64_t global_valid_tokens);
  double clip(double loss);  // the norm before
  void update(double loss, double max_loss);
  void log_step();
  void begin_interval();
  void finish_step(RunEnd* end);  // checkpoint, validation, files
  void validate();
  void stop_if_asked(RunEnd* end);
  void end_of_data(RunEnd* end);
  void save_for_stop(const RunEnd& end);
  void show_summary() const;

  const config::Trainer config_;
  at::Device device_;
  DeviceMesh mesh_;
  PhaseClock clock_;
  std::unique_ptr<ProcessGroups> groups_;
  std::unique_ptr<FailureBoard> board_;  // null with one process and with fake ranks
  StopPoint stop_point_;
  DataRank place_;
  int64_t batches_per_step_ = 1;
  int64_t start_bytes_ = 0;  // resident before the model was
  PeakFlops peak_;
  MemoryMeter memory_;
  ModelSize size_;
  Colors colors_;

  std::unique_ptr<Model> model_;
  std::unique_ptr<Execution> execution_;
  ShardedWeights* sharded_ = nullptr;  // of execution_; null with one process
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LrScheduler> scheduler_;
  std::unique_ptr<Ema> ema_;  // null without ema_weights.enable
  std::unique_ptr<data::Prefetcher> data_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<Validator> validator_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<TraceProfiler> profiler_;
  TrainState state_;
  GracePeriod grace_;

  // Of the step in progress.
  StepRecord record_;
  // Since the last line of the log.
  Interval interval_;
  MemoryUse interval_memory_;
  PhaseClock::Clock::time_point interval_start_;
  RunTotals totals_;
};

}  // namespace milepost::train
