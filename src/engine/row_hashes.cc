#include "engine/row_hashes.h"

#include <algorithm>

namespace milepost {
namespace {

// What is left of a file's row.
struct Rest {
  std::span<const Bytes> parts;
  Bytes front;

  // Goes on to the next part that holds bytes; false at the end.
  bool has_bytes() {
    while (front.empty() && !parts.empty()) {
      front = parts.front();
      parts = parts.subspan(1);
    }
    return !front.empty();
  }
};

}  // namespace

bool RowHashes::add(int64_t row, std::span<const std::span<const Bytes>> parts_of_files) {
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return failed_row_ < row || next_row_ == row; });
    if (failed_row_ < row) return false;
  }
  update(parts_of_files);
  std::lock_guard lock(mutex_);
  ++next_row_;
  turn_.notify_all();
  return true;
}

void RowHashes::fail(int64_t row) {
  std::lock_guard lock(mutex_);
  failed_row_ = std::min(failed_row_, row);
  turn_.notify_all();
}

// Stretches of equal length at a time, so that no stream goes on alone while another has bytes.
void RowHashes::update(std::span<const std::span<const Bytes>> parts_of_files) {
  std::vector<Rest> rests;
  for (const std::span<const Bytes> parts : parts_of_files) rests.push_back({parts, {}});
  std::vector<Sha256*> streams;
  std::vector<Bytes> blocks;
  for (;;) {
    streams.clear();
    size_t length = std::numeric_limits<size_t>::max();
    for (size_t i = 0; i < rests.size(); ++i) {
      if (!rests[i].has_bytes()) continue;
      length = std::min(length, rests[i].front.size());
      streams.push_back(&streams_[i]);
    }
    if (streams.empty()) return;
    blocks.clear();
    for (Rest& rest : rests) {
      if (rest.front.empty()) continue;
      blocks.push_back(rest.front.first(length));
      rest.front = rest.front.subspan(length);
    }
    sha256_update_many(streams, blocks);
  }
}

}  // namespace milepost
