#include "train/run/trace_profiler.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/storage/storage.h"
#include "train/run/log.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

namespace profiler = torch::autograd::profiler;

torch::profiler::impl::ProfilerConfig kineto() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO);
}

std::set<torch::profiler::impl::ActivityType> activities() {
  std::set<torch::profiler::impl::ActivityType> wanted = {torch::profiler::impl::ActivityType::CPU};
  if (at::globalContext().hasCUDA()) wanted.insert(torch::profiler::impl::ActivityType::CUDA);
  return wanted;
}

bool records(ProfilerAction action) {
  return action == ProfilerAction::kRecord || action == ProfilerAction::kRecordAndSave;
}

// Whether a file ends as libtorch's traces do: `"traceName": "PATH" }`. Brackets of events have lines of
// their own.
bool is_whole_trace(const std::string& path) {
  constexpr std::string_view kEnd = "\" }";
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return false;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg()), wanted = std::ssize(kEnd);
  if (size < wanted) return false;
  std::string end(kEnd.size(), '\0');
  file.seekg(size - wanted).read(end.data(), wanted);
  return end == kEnd;
}

}  // namespace

void require_whole_trace(const std::string& path) {
  if (is_whole_trace(path)) return;
  // More than a full disk has left over.
  const std::vector<std::byte> zeros(size_t{1} << 20);
  const Bytes bytes(zeros);
  const auto storage = posix_storage();
  const auto discard = [&] {
    std::error_code code;
    if (std::filesystem::is_regular_file(path, code)) std::filesystem::remove(path, code);
  };
  try {
    const auto file = storage->open_write(path, {.direct = false});
    file->write_at(0, {&bytes, 1});
    file->sync();
    file->close();
  } catch (const StorageError&) {
    discard();
    throw;
  }
  discard();
  throw StorageError(ErrorCode::kIo, "the profiler left no whole trace", path);
}

ProfilerAction profiler_action(const config::Profiler& options, int64_t index) {
  const int64_t wait = options.profile_freq - options.profiler_active - options.profiler_warmup;
  const int64_t skipped = options.profiler_skip_first.value_or(0);
  if (index < skipped) return ProfilerAction::kNone;
  // Without the first wait the schedule is where it would be after it.
  index -= skipped;
  if (options.profiler_skip_first_wait.value_or(0) != 0) index += wait;
  const int64_t repeat = options.profiler_repeat.value_or(0);
  if (repeat > 0 && index / options.profile_freq >= repeat) return ProfilerAction::kNone;
  const int64_t place = index % options.profile_freq;
  if (place < wait) return ProfilerAction::kNone;
  if (place < wait + options.profiler_warmup) return ProfilerAction::kWarmUp;
  return place + 1 < options.profile_freq ? ProfilerAction::kRecord : ProfilerAction::kRecordAndSave;
}

TraceProfiler::TraceProfiler(const config::Profiler& options, const std::string& dump_folder, int64_t rank,
                             int64_t first_step)
    : options_(options),
      folder_((std::filesystem::path(dump_folder) / options.save_traces_folder).string()),
      rank_(rank) {
  if (options_.enable_memory_snapshot) {
    log_warning("profiler.enable_memory_snapshot: this version takes no snapshots of memory; ignored");
  }
  if (!options_.enable_profiling) return;
  log_info(fmt::format("Profiling active. Traces will be saved at {}", folder_));
  prepare(profiler_action(options_, first_step - 1));
}

TraceProfiler::~TraceProfiler() {
  try {
    if (records(running_)) profiler::disableProfiler();
  } catch (const std::exception& error) {
    log_warning(fmt::format("the profiler could not be ended: {}", error.what()));
  }
}

void TraceProfiler::prepare(ProfilerAction action) {
  const bool goes_on = records(running_);
  if (action == ProfilerAction::kWarmUp && running_ != ProfilerAction::kWarmUp) {
    profiler::prepareProfiler(kineto(), activities());
  } else if (records(action) && !goes_on) {
    if (running_ != ProfilerAction::kWarmUp) profiler::prepareProfiler(kineto(), activities());
    profiler::enableProfiler(
        kineto(), activities(),
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  }
  running_ = action;
}

void TraceProfiler::step(int64_t step) {
  if (!options_.enable_profiling) return;
  if (running_ == ProfilerAction::kRecordAndSave) {
    save(step);
    running_ = ProfilerAction::kNone;
  }
  prepare(profiler_action(options_, step));
}

void TraceProfiler::save(int64_t step) {
  log_info(fmt::format("Dumping profiler traces at step {}", step));
  const auto start = std::chrono::steady_clock::now();
  const auto result = profiler::disableProfiler();
  const std::filesystem::path folder = std::filesystem::path(folder_) / fmt::format("iteration_{}", step);
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    throw StorageError(ErrorCode::kIo, "cannot make the folder of a trace", folder.string(), code.value());
  const std::string path = (folder / fmt::format("rank{}_trace.json", rank_)).string();
  result->save(path);
  require_whole_trace(path);
  log_info(fmt::format("Finished dumping profiler traces in {:.2f} seconds",
                       std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
}

}  // namespace milepost::train
