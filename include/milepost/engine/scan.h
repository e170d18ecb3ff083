// scan: passes over the elements of whole tensors, in parallel and in bounded memory: hashes and statistics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"

namespace milepost {

struct ScanOptions {
  int num_threads = 0;
  int64_t max_memory_bytes = int64_t{128} << 20;
  Progress* progress = nullptr;
};

// Calls visit(i, begin, bytes, worker) with the row-major bytes of tensors[i] (catalog indexes), pieces of one tensor in order and on one worker, different tensors at once.
void scan_tensors(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int64_t>& tensors, const ScanOptions& options,
                  const std::function<void(int64_t i, int64_t begin, Bytes bytes, int worker)>& visit);

// SHA-256 of each tensor's row-major little-endian bytes.
std::vector<Sha256Digest> hash_tensors(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int64_t>& tensors, const ScanOptions& options);

// Over all elements; NaN and Inf are counted and left out of min, max, mean and std. Complex numbers count by their modulus.
struct TensorStats {
  int64_t count = 0, nan = 0, inf = 0, zeros = 0;
  double min = 0, max = 0, mean = 0, std = 0;  // population std; 0 where no finite element is
};
std::vector<TensorStats> tensor_stats(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int64_t>& tensors, const ScanOptions& options);

}  // namespace milepost
