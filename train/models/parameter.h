// Parameters and buffers: what a model holds, what a checkpoint stores of it, what an optimizer updates.
//
// A parameter knows its global shape and its layout on the mesh, so that optimizer, clipping and checkpoint
// see local shards and need to know nothing else about how the model is spread over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "milepost/catalog/layout.h"
#include "train/torch.h"

namespace milepost::train {

// How a parameter starts (spec training, section 6).
struct Init {
  enum class Kind : uint8_t {
    kZeros,
    kOnes,
    kNormal,       // mean 0, `std`
    kTruncNormal,  // the same, drawn again outside [low, high] (absolute values, not multiples of std)
    kUniform,      // [low, high)
  };
  Kind kind = Kind::kZeros;
  double std = 0, low = -2, high = 2;

  static Init zeros() { return {Kind::kZeros}; }
  static Init ones() { return {Kind::kOnes}; }
  static Init normal(double std) { return {Kind::kNormal, std}; }
  static Init trunc_normal(double std, double low = -2, double high = 2) {
    return {Kind::kTruncNormal, std, low, high};
  }
  static Init uniform(double low, double high) { return {Kind::kUniform, 0, low, high}; }
};

// Part of a parameter that checkpoints store under a name of its own, as llama3's fused query, key and value
// projection is stored as wq, wk and wv: the parameter's rows are cut in periods of `period_rows`, and the
// part holds rows [first_row, first_row + num_rows) of each, in order.
struct SavedPart {
  std::string name;
  int64_t period_rows = 0, first_row = 0, num_rows = 0;
};

struct Parameter {
  std::string name;            // TorchTitan's: "layers.0.attention.wq.weight"
  std::vector<int64_t> shape;  // of the whole tensor
  Init init;
  bool trainable = true;         // else a buffer: no gradient, no optimizer state
  bool saved = true;             // part of checkpoints
  std::vector<SavedPart> parts;  // empty: stored under `name`. An optimizer's moments never are in parts.
  // Second name under which a checkpoint's model holds the same values: "lm_head.weight" of tied embeddings.
  // Written besides `name`, not read back; an optimizer knows `name` only. Empty: none.
  std::string tied_name;

  // Which part of `shape` this rank holds. One process: an empty mesh, everything.
  Mesh mesh;
  std::vector<Placement> placements;
  int64_t rank = 0;  // this one's, in the mesh

  // This rank's part, in the dtype in which parameters are kept (training.dtype; buffers float32). A leaf
  // that requires a gradient when trainable; its gradient lies in local.grad(), same dtype and shape.
  // Undefined until Model::allocate().
  at::Tensor local;
  // What a forward pass computes with: whole, in the compute dtype. Set by Execution for the time in which
  // the parameter's block runs.
  at::Tensor compute;
};

// The part of the whole tensor that this rank holds; everything without a mesh.
Box local_box(const Parameter& parameter);
// The tensor dimension that a mesh dimension shards; 0 where none does.
int sharded_dimension(const Parameter& parameter);

// The part of `tensor` (the parameter, its gradient or a moment: same leading dimension) that `part` names: a
// view of shape [num_periods, num_rows, ...], rows in the order of the stored tensor.
at::Tensor part_view(const at::Tensor& tensor, const SavedPart& part);

}  // namespace milepost::train
