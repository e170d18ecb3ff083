// RowHashes: SHA-256 of files that are made together, block by block.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/base/checksum.h"

namespace milepost {

// A row holds the next bytes of every file. Threads add rows in any order, and wait for their turn; whoever
// is waited for must be at work. Threads: any but for finish, which comes after all else.
//
// Cost: up to four files' streams are interleaved on the adding thread's core, three times the rate of one;
// the rows follow each other.
class RowHashes {
 public:
  explicit RowHashes(size_t num_files) : streams_(num_files) {}

  // Row `row`, from 0: of each file the stretches that follow one another, none where it has ended. Returns
  // false when an earlier row has failed; nothing is hashed then.
  bool add(int64_t row, std::span<const std::span<const Bytes>> parts_of_files);
  // The rows from `row` on will not come.
  void fail(int64_t row);

  Sha256Digest finish(size_t file) { return streams_[file].finish(); }  // once for each

 private:
  void update(std::span<const std::span<const Bytes>> parts_of_files);

  std::vector<Sha256> streams_;  // of the thread whose turn it is
  std::mutex mutex_;
  std::condition_variable turn_;
  int64_t next_row_ = 0;                                      // GUARDED_BY(mutex_)
  int64_t failed_row_ = std::numeric_limits<int64_t>::max();  // GUARDED_BY(mutex_): the first that failed
};

}  // namespace milepost
