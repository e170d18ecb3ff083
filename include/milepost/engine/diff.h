// diff: compares two checkpoints entry by entry, whatever their formats and layouts.
//
// Tensors are compared as their row-major elements, so that chunks, strides and files do not matter; objects
// by their value (that of pickle::to_json, with the hashes of tensors inside).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"

namespace milepost {

struct DiffOptions {
  std::vector<std::string> match;  // globs over names, each of which must match one; empty: all entries
  // With neither, elements are equal when their bytes are, and dtypes must agree. With either (the other then
  // is 0): |a - b| <= atol + rtol * |b|, of complex numbers the distance in the plane; NaN equals NaN, and
  // real dtypes may differ.
  std::optional<double> rtol, atol;
  int num_threads = 0;  // 0: default_num_threads()
  // All buffers together, about 6 MiB a thread; a smaller number means fewer threads, but never less than
  // one.
  int64_t max_memory_bytes = int64_t{128} << 20;
  Progress* progress = nullptr;  // counts bytes of A's elements
};

struct Difference {
  enum class Kind : uint8_t {
    kOnlyInA,
    kOnlyInB,
    kKind,   // a tensor here, an object there
    kShape,  // values are not looked at
    kDType,  // values are not looked at
    kValues
  };
  Kind kind = Kind::kValues;
  std::string name;
  std::string a, b;  // what each side has, for people: "[4, 2] float32", or the first differing values
  int64_t num_different = 0;  // kValues of tensors: elements that differ (beyond the tolerance, if any)
  double max_abs = 0,
         max_rel = 0;  // over these, without NaN; max_rel is relative to |b|, infinite where b is 0
  std::vector<int64_t>
      first_index;  // the first of these in row-major order; empty for objects and 0-d tensors
};
std::string_view difference_kind_name(Difference::Kind kind);  // "only_in_a", "shape", "values", ...

struct DiffReport {
  std::vector<Difference> differences;  // in A's order, then what only B has
  int64_t tensors_compared = 0, objects_compared = 0, bytes_compared = 0;
  bool equal() const { return differences.empty(); }
};

// Threads: shares both checkpoints for the time of the call and runs a pool of its own; the report does not
// depend on the number of threads. Throws ValueError for a negative or NaN tolerance and a glob that matches
// no name of either, and what reading throws (FormatError, StorageError, with the key): two checkpoints of
// which one is damaged are not compared.
DiffReport diff(const std::shared_ptr<const Checkpoint>& a, const std::shared_ptr<const Checkpoint>& b,
                const DiffOptions& options = {});

}  // namespace milepost
