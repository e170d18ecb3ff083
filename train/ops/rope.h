// Rotary position embedding on adjacent pairs (2i, 2i + 1), computed in float32 (RoFormer, arXiv:2104.09864;
// stretched as YaRN, arXiv:2309.00071, or as Llama 3.1; spec training, section 5).
#pragma once

#include <cstdint>

#include "milepost/flavor/flavor.h"
#include "train/torch.h"

namespace milepost::train {

// Angles of every position: cos and sin, float32 [length, dim / 2].
struct RopeTable {
  int64_t dim = 0, length = 0;
  at::Tensor cos, sin;
};
// Frequencies in double precision as the reference computes them in float32; `length` positions.
RopeTable make_rope_table(const flavor::Rope& rope, int64_t dim, int64_t length);

// x [B, L, H, dim] (or [B, L, dim]), positions int64 [B, L] with values in [0, table.length) -> same shape
// and dtype, dense. `x` may be a view of the last part of wider heads. Throws ValueError for a position
// outside the table, naming it and the table's length.
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions_BL);

// The same for the last `table.dim` elements of each head of x [B, L, H, D], the others left alone, in x's
// own memory: no copy either way. `x` itself must not be used afterwards, and nothing may have kept it for a
// backward pass (a linear's result is fine). Where x is not dense on the CPU, a copy is rotated.
at::Tensor rope_in_place(const at::Tensor& x_BLHD, const RopeTable& table, const at::Tensor& positions_BL);

}  // namespace milepost::train
