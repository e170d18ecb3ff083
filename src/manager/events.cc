#include "milepost/manager/events.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "milepost/base/error.h"

namespace milepost::manager {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string_view event_name(CheckpointEvent::Kind kind) {
  switch (kind) {
    case CheckpointEvent::Kind::kStaged:
      return "staged";
    case CheckpointEvent::Kind::kWritten:
      return "written";
    case CheckpointEvent::Kind::kVerified:
      return "verified";
    case CheckpointEvent::Kind::kCommitted:
      return "committed";
    case CheckpointEvent::Kind::kRemoved:
      return "removed";
  }
  return "unknown";
}

double gigabytes_per_second(const CheckpointEvent& event) {
  return event.seconds > 0 ? static_cast<double>(event.bytes) / 1e9 / event.seconds : 0;
}

std::string event_json(const CheckpointEvent& event, double time) {
  std::string text = fmt::format(
      R"({{"time": {:.3f}, "event": "{}", "step": {}, "bytes": {}, "seconds": {:.6f}, "gb_per_s": {:.4f})",
      time, event_name(event.kind), event.step, event.bytes, event.seconds, gigabytes_per_second(event));
  if (event.pause_seconds) text += fmt::format(R"(, "pause_seconds": {:.6f})", *event.pause_seconds);
  return text + "}";
}

std::string event_text(const CheckpointEvent& event) {
  std::string text = fmt::format("Checkpoint step-{} {}: {:.2f} GB in {:.2f} s, {:.2f} GB/s", event.step,
                                 event_name(event.kind), static_cast<double>(event.bytes) / 1e9,
                                 event.seconds, gigabytes_per_second(event));
  if (event.pause_seconds) text += fmt::format("; training stood still for {:.2f} s", *event.pause_seconds);
  return text;
}

StorageLocation events_file(const std::string& dump_folder) {
  const StorageLocation dump = resolve_location(dump_folder);
  return {dump.storage, join_path(dump.path, "checkpoint-events.jsonl")};
}

EventLog::EventLog(StorageLocation file, Log log) : file_(std::move(file)), log_(std::move(log)) {}

void EventLog::add(const CheckpointEvent& event) {
  if (log_) log_(false, event_text(event));
  const std::lock_guard lock(mutex_);
  if (is_broken_) return;
  try {
    append(event_json(event, seconds_since_1970()) + "\n");
  } catch (const std::exception& error) {
    is_broken_ = true;
    if (log_) log_(true, fmt::format("Events of checkpoints are no longer recorded: {}", error.what()));
  }
}

void EventLog::append(const std::string& line) {
  const std::optional<FileInfo> info = file_.storage->stat(file_.path);
  WriteFileOptions options;
  options.direct = false;
  options.keep_content = true;
  const std::unique_ptr<WritableFile> file = file_.storage->open_write(file_.path, options);
  const Bytes bytes = as_bytes(line);
  file->write_at(info ? info->size_bytes : 0, {&bytes, 1});
  file->close();
}

}  // namespace milepost::manager
