// Causal attention within documents, forward and backward, without [L, L] scores in memory.
//
// Shapes: B sequences, L positions, H query heads, G key heads (G divides H; query head h uses key head
// h / (H / G)), D query and key size, V value size (D and V may differ), N part of D that is not rotated.
// Method: blocks of queries against blocks of keys with a running maximum and sum (FlashAttention-2,
// arXiv:2307.08691); the backward pass recomputes scores from the kept log-sum-exp. Blocks that causality or
// document borders mask wholly are skipped. float32 or bfloat16 in and out; sums and softmax in float32.
// Deterministic: results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/torch.h"

namespace milepost::train {

// Where the document of each position begins, from positions: one begins wherever a position is 0, and at
// the start of a row.
struct DocumentBorders {
  int64_t batch = 0, length = 0;
  std::vector<int32_t> begin_BL;  // first position of the same row that this one may attend to
};
std::shared_ptr<const DocumentBorders> document_borders(const at::Tensor& positions_BL);

// q [B, L, H, D], k [B, L, G, D], v [B, L, G, V], any strides with the last dimension dense -> [B, L, H, V].
at::Tensor attention(const at::Tensor& q_BLHD, const at::Tensor& k_BLGD, const at::Tensor& v_BLGV,
                     const std::shared_ptr<const DocumentBorders>& borders, double scale);

// Multi-head latent attention's form: keys are [kv[..., :N], k_rope] with one rotated part k_rope [B, L, D-N]
// for all heads, values kv[..., N:]; kv [B, L, H, N + V]. Neither keys nor values are ever laid out on their
// own.
at::Tensor latent_attention(const at::Tensor& q_BLHD, const at::Tensor& kv_BLHE, const at::Tensor& k_rope_BLR,
                            const std::shared_ptr<const DocumentBorders>& borders, double scale);

}  // namespace milepost::train
