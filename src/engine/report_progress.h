// How an operation tells its Progress, which may be absent, and stops when it was cancelled.
#pragma once

#include "milepost/base/error.h"
#include "milepost/base/progress.h"

namespace milepost {

inline void expect_bytes(Progress* progress, int64_t num_bytes) {
  if (progress != nullptr) progress->total_bytes += num_bytes;
}

// Throws Error(kIo, "cancelled") when the end asked for it.
inline void advance(Progress* progress, int64_t num_bytes) {
  if (progress == nullptr) return;
  progress->done_bytes += num_bytes;
  if (progress->cancel) throw Error(ErrorCode::kIo, "cancelled");
}

}  // namespace milepost
