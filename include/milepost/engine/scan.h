// scan: passes over the elements of whole tensors, in parallel and in bounded memory: hashes and statistics.
//
// Ownership: everything here shares the checkpoint for the time of the call. Threads: each call runs a pool
// of its own and may be made from any thread. Errors: what TensorReader throws (FormatError for holes and
// damaged chunks, StorageError), with the tensor's name as key; Error(kIo, "cancelled") when Progress::cancel
// is set. The same input gives the same result and the same error on any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"

namespace milepost {

struct ScanOptions {
  int num_threads = 0;  // 0: default_num_threads()
  // All buffers together, about 3 MiB a thread; a smaller number means fewer threads, but never less than
  // one.
  int64_t max_memory_bytes = int64_t{128} << 20;
  Progress* progress = nullptr;  // counts bytes of elements
};

// Calls visit(i, begin, bytes, worker) with the row-major little-endian bytes of tensors[i] (catalog
// indexes), from byte `begin` of the tensor on: pieces of 1 MiB but for the last, in order and on one worker
// (in [0, num_threads)), different tensors at once, the largest first. A tensor without elements is visited
// once, with no bytes. `bytes` is valid during the call only. What `visit` throws ends the scan.
void scan_tensors(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int64_t>& tensors,
                  const ScanOptions& options,
                  const std::function<void(int64_t i, int64_t begin, Bytes bytes, int worker)>& visit);

// SHA-256 of each tensor's row-major little-endian bytes: independent of chunks, strides and format.
std::vector<Sha256Digest> hash_tensors(const std::shared_ptr<const Checkpoint>& checkpoint,
                                       const std::vector<int64_t>& tensors, const ScanOptions& options);

// The same, in hex, for a tensor that lies inside an object (see pickle::JsonOptions::tensor_sha256).
std::string hash_object_tensor(const ObjectValue& object, const pickle::TensorRef& tensor);

// Over all elements; NaN and Inf are counted and left out of min, max, mean and std. Complex numbers count by
// their modulus. Sums are taken in blocks and merged in order (Chan, Golub, LeVeque), so that no digits
// cancel and the result does not depend on threads.
struct TensorStats {
  int64_t count = 0, nan = 0, inf = 0, zeros = 0;
  double min = 0, max = 0, mean = 0, std = 0;  // population std; all 0 where no element is finite
  bool has_values = true;  // false for types that pack several numbers into a byte: only count holds
};
std::vector<TensorStats> tensor_stats(const std::shared_ptr<const Checkpoint>& checkpoint,
                                      const std::vector<int64_t>& tensors, const ScanOptions& options);

// One element for people: "0.25", "-3", "true", "(1, -2)" for complex; packed types as hex. Any alignment.
// Requires a type of whole bytes.
std::string element_text(const std::byte* element, DType dtype);

}  // namespace milepost
