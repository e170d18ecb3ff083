// Traces of single steps for Chrome's viewer (chrome://tracing, Perfetto), as libtorch's profiler writes
// them.
#pragma once

#include <cstdint>
#include <string>

#include "milepost/config/sections.h"

namespace milepost::train {

enum class ProfilerAction : uint8_t { kNone, kWarmUp, kRecord, kRecordAndSave };
// What the profiler does while training step `index` + 1 runs: waiting, warm-up and active steps take turns,
// profile_freq steps together. Pure.
ProfilerAction profiler_action(const config::Profiler& options, int64_t index);

// Throws StorageError unless the file at `path` ends as a trace does; what is there instead is then removed.
// libtorch does not report a trace that it could not write: the error is that of writing there once more.
void require_whole_trace(const std::string& path);

// Records as scheduled, one thread: that of the training. Trace of the steps up to N:
// {folder}/iteration_N/rank{rank}_trace.json.
class TraceProfiler {
 public:
  // Does nothing where profiling is not enabled. Warns of what the options ask for and this version has not.
  TraceProfiler(const config::Profiler& options, const std::string& dump_folder, int64_t rank,
                int64_t first_step);
  ~TraceProfiler();  // a trace in the making is dropped
  // After training step `step` has ended. Throws StorageError.
  void step(int64_t step);

 private:
  void prepare(ProfilerAction action);
  void save(int64_t step);

  config::Profiler options_;
  std::string folder_;
  int64_t rank_;
  ProfilerAction running_ = ProfilerAction::kNone;
};

}  // namespace milepost::train
