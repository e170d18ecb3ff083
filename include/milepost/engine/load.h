// load: fills existing memory from a checkpoint, reading only the bytes that are wanted (resharding
// included). LoadPlan does it in two steps, for callers that decide who reads what.
//
// Ownership: the targets' memory is the caller's and must not be touched meanwhile; targets must not overlap.
// Threads: several loads of one Checkpoint may run at once; each uses threads of its own. Memory: a window of
// 2 MiB a thread, and 4 MiB more where it casts; tensor sizes do not enter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

// A load cut into pieces, none of them read yet: several processes that want the same boxes can share the
// reading, since equal boxes are cut alike.
//
// Threads: one at a time.
class LoadPlan {
 public:
  // A range of the row-major elements of a target's box, whose stored bytes are at most 4 MiB; [0, -1) for a
  // target with strides, which is one piece. Targets without elements have none.
  struct Piece {
    int64_t target, tensor;  // indexes into the targets and the catalog's tensors
    int64_t begin, end;
    uint32_t file;
    int64_t offset;  // where the tensor's first bytes lie
  };
  // Some elements of a piece, and where they go: dense, in the target's dtype; null: into the target.
  struct Read {
    size_t piece;
    int64_t begin, end;  // within the piece's
    std::byte* into = nullptr;
  };

  // Throws as load() does before any byte is moved.
  LoadPlan(std::shared_ptr<const Checkpoint> checkpoint, std::vector<LoadTarget> targets,
           const LoadOptions& options = {});
  ~LoadPlan();
  LoadPlan(LoadPlan&&) noexcept;

  const std::vector<LoadTarget>& targets() const { return targets_; }
  // In the order in which their bytes lie in the checkpoint, then of targets and elements.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Bytes of an element of a piece in the checkpoint, and in memory. 6-bit elements count as bytes.
  int64_t stored_size(const Piece& piece) const;
  int64_t memory_size(const Piece& piece) const;

  // Reads in parallel; a target with strides whole. Throws as load() does while bytes move.
  void read(std::span<const Read> reads);
  // bytes_read: so far.
  LoadReport report() const;

 private:
  class Worker;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<LoadTarget> targets_;
  LoadReport report_;
  std::vector<Piece> pieces_;
  Progress* progress_;
  int num_threads_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace milepost
