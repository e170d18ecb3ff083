// load: fills existing memory from a checkpoint, reading only the bytes that are wanted (resharding
// included).
//
// Ownership: the targets' memory is the caller's and must not be touched meanwhile; targets must not overlap.
// Threads: several loads of one Checkpoint may run at once; each uses threads of its own. Memory: a window of
// 2 MiB a thread, and 4 MiB more where it casts; tensor sizes do not enter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/tensor/box.h"

namespace milepost {

// Memory that wants a box of a tensor.
struct LoadTarget {
  std::string name;
  DType dtype;  // of the memory; where another floating-point one is stored, it is cast as torch does
  Dims shape;   // of the whole tensor, must equal the stored one
  Box box;      // which part of it
  std::byte* data = nullptr;
  Dims strides;  // in elements; empty: row-major
};

struct LoadOptions {
  int num_threads = 0;  // 0: default_num_threads()
  bool allow_missing =
      false;  // names that the checkpoint lacks keep their memory and are listed in the report
  bool refuse_unexpected = false;  // entries that nobody wants are an error
  bool allow_lossy_cast = true;    // torch casts silently; false: ValueError kLossyCast
  Progress* progress = nullptr;
};

struct LoadReport {
  std::vector<std::string> missing, unexpected;
  int64_t bytes_wanted = 0, bytes_read = 0;  // payload bytes
};

// Before any byte is moved, all differences are collected and thrown as one error: ShapeMismatchError when
// any shape differs ("emb: saved [4, 2], wanted [6, 2]"), else MissingKeyError, each with the complete list
// of missing, unexpected and mismatched names. A missing data file is kMissingFile with the tensor and box
// that need it. ValueError kUnsupported: a cast from or to a dtype of another kind than floating point.
// ValueError (key): strides that are not one a dimension, or a part of a tensor of 6-bit elements, which are
// loaded whole and row-major. After an error while bytes move, the targets hold unspecified bytes.
LoadReport load(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<LoadTarget>& targets,
                const LoadOptions& options = {});

}  // namespace milepost
