// Events: what happened to a run's checkpoints, for people (a line of the log) and for programs (a line of
// JSON in `checkpoint-events.jsonl`).
//
//   {"time": 1764460800.125, "event": "committed", "step": 500, "bytes": 1610612736, "seconds": 0.81,
//    "gb_per_s": 1.99, "pause_seconds": 0.81}
//
// `time` is in seconds since 1970; GB are 10^9 bytes. `pause_seconds`, where it is there, is how long the
// training thread stood still for this save.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/storage/storage.h"

namespace milepost::manager {

struct CheckpointEvent {
  enum class Kind : uint8_t {
    kStaged,     // copied, so that training goes on while the copy is written
    kWritten,    // data files, synced
    kVerified,   // hashes compared with the manifest
    kCommitted,  // at its final name; seconds since the save began
    kRemoved,    // by keep_latest_k
  };
  Kind kind = Kind::kStaged;
  int64_t step = 0;
  int64_t bytes = 0;  // of all ranks; of kStaged, of the first one
  double seconds = 0;
  std::optional<double> pause_seconds = std::nullopt;
};
std::string_view event_name(CheckpointEvent::Kind kind);    // "staged"
double gigabytes_per_second(const CheckpointEvent& event);  // 0 without bytes or time

std::string event_json(const CheckpointEvent& event, double time);
// "Checkpoint step-500 written: 1.61 GB in 0.81 s, 1.99 GB/s".
std::string event_text(const CheckpointEvent& event);

// Where a run's events are: `checkpoint-events.jsonl` in its dump folder.
StorageLocation events_file(const std::string& dump_folder);

// Appends events to a file. Threads: any. An error never reaches the caller: the first one becomes a warning,
// and the file is then left alone. Durability: none; a line may be lost in a crash, a half line too.
class EventLog {
 public:
  // `log` takes the lines for people and the warning, on the thread that adds the event. Writes nothing
  // before the first event. What the file holds stays.
  using Log = std::function<void(bool is_warning, std::string_view text)>;
  EventLog(StorageLocation file, Log log);
  void add(const CheckpointEvent& event);

 private:
  void append(const std::string& line);

  const StorageLocation file_;
  const Log log_;
  std::mutex mutex_;
  bool is_broken_ = false;  // GUARDED_BY(mutex_)
};

}  // namespace milepost::manager
