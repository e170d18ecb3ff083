// StagingBuffers: memory of their own for what a checkpoint looks at, so that training may go on to change it
// while the copy is written.
//
//   StagingBuffers staging(StagingBuffers::Kind::kPageable);
//   staging.clear();
//   Bytes copy = staging.place(parameter);  // for each piece; nothing is copied yet
//   staging.copy(2);                        // now it is; write from `copy`, change `parameter`
//
// The memory stays when it is cleared: a first use pays for fresh pages, the next ones for a copy of memory
// alone. Extra memory: the bytes placed, to the page, in chunks; a chunk's unused rest is never touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "milepost/base/bytes.h"

namespace milepost::manager {

class StagingBuffers {
 public:
  // kLocked: kept out of swap, as far as the process may lock memory (RLIMIT_MEMLOCK); what may not be locked
  // is pageable.
  enum class Kind : uint8_t { kPageable, kLocked };
  explicit StagingBuffers(Kind kind) : kind_(kind) {}
  ~StagingBuffers();
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  // Requires: no copy under way, and nobody reads what was placed.
  void clear();
  // Where the copy of `live` will be, aligned to 64 bytes. `live` must stay until it has been copied. Throws
  // Error kTooLarge where memory cannot be had. Requires: no copy under way.
  Bytes place(Bytes live);
  // Copies what was placed since clear() and returns when all of it is there. Several threads may call it at
  // once: they share the work, so that one who must wait can hasten the end. `num_threads`: of this call.
  void copy(int num_threads);

  bool is_copied() const { return slices_done_ == static_cast<int64_t>(slices_.size()); }
  int64_t size_bytes() const { return size_bytes_; }      // placed
  int64_t locked_bytes() const { return locked_bytes_; }  // of the chunks

 private:
  struct Chunk {
    std::byte* data;
    int64_t size;
  };
  struct Slice {
    const std::byte* from;
    std::byte* to;
    size_t size;
  };
  void add_chunk(int64_t at_least);
  void copy_slices();

  const Kind kind_;
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;    // the one that is being filled
  int64_t filled_ = 0;  // of it
  int64_t size_bytes_ = 0, locked_bytes_ = 0;
  std::vector<Slice> slices_;
  std::atomic<int64_t> next_slice_{0}, slices_done_{0};
};

}  // namespace milepost::manager
