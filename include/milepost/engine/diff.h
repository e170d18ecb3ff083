// diff: compares two checkpoints across formats and layouts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"

namespace milepost {

struct DiffOptions {
  std::vector<std::string> match;         // globs; empty: all
  std::optional<double> rtol, atol;       // either set: |a - b| <= atol + rtol * |b|, NaN equals NaN; dtypes may differ. Neither: bitwise
  int num_threads = 0;
  int64_t max_memory_bytes = int64_t{128} << 20;
  Progress* progress = nullptr;
};

struct Difference {
  enum class Kind : uint8_t { kOnlyInA, kOnlyInB, kKind, kShape, kDType, kValues } kind;
  std::string name;
  std::string a, b;              // what each side has, for people
  int64_t num_different = 0;     // elements
  double max_abs = 0, max_rel = 0;
  std::vector<int64_t> first_index;  // first differing element
};

struct DiffReport {
  std::vector<Difference> differences;  // in A's order, then what only B has
  int64_t tensors_compared = 0, objects_compared = 0, bytes_compared = 0;
  bool equal() const { return differences.empty(); }
};

DiffReport diff(const std::shared_ptr<const Checkpoint>& a, const std::shared_ptr<const Checkpoint>& b, const DiffOptions& options = {});

}  // namespace milepost
