// Causal attention within documents over plain memory, cut into tasks that any thread may run in any order:
// each task writes what no other does, so results do not depend on the schedule.
//
// Method (FlashAttention-2, arXiv:2307.08691): blocks of keys, groups of eight queries, a running maximum and
// sum per row; the backward pass makes scores again from the kept logarithm of the softmax's denominator,
// with keys as rows (then the denominators are a vector along the row, and two of its three products need no
// transpose). Blocks and groups reach only as far as some row of theirs may see.
//
// Shapes: B sequences, L positions, H query heads, G key heads (G divides H), D query and key size, V value
// size. The first D - R features of a key are its head's own, the last R may be shared by all heads.
// T is float or BFloat16: the type of inputs, results and of both operands of every product; sums, scores and
// softmax are float32. Scratch memory belongs to the thread and is kept: about 4 MB forward; backward 8 MB
// and L * (D + V) floats.
#pragma once

#include <cstdint>

#include "train/ops/kernels/bfloat16.h"

namespace milepost::train {

// [B, L, heads, features] with any strides (in elements) but a dense last dimension.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  T* at(int64_t batch, int64_t row, int64_t head) const {
    return data + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

template <class T>
struct AttentionProblem {
  int64_t batch = 0, length = 0, heads = 0, key_heads = 0;
  int64_t dim = 0, shared_dim = 0, value_dim = 0;
  HeadRows<const T> q, k, k_shared, v;  // k holds dim - shared_dim features; k_shared has head_stride 0
  // Queries i see keys [begin[i], i] of their row, keys j are seen by queries [j, end[j]); neither decreases.
  const int32_t* begin_BL = nullptr;
  const int32_t* end_BL = nullptr;  // backward only
  float scale = 1;
};

template <class T>
struct AttentionResult {
  HeadRows<T> out;            // [B, L, H, V]
  float* lse2_BHL = nullptr;  // base-2 logarithm of sum(2^(score * scale * log2(e)))
};
template <class T>
int64_t num_forward_tasks(const AttentionProblem<T>& problem);
template <class T>
void attention_forward_task(const AttentionProblem<T>& problem, const AttentionResult<T>& result,
                            int64_t task);

template <class T>
struct AttentionGradient {
  HeadRows<const T> out, d_out;
  const float* lse2_BHL = nullptr;
  HeadRows<T> dq, dk, dv;
  float* dk_shared_BGLR = nullptr;  // of each key head on its own
};
template <class T>
int64_t num_backward_tasks(const AttentionProblem<T>& problem);
template <class T>
void attention_backward_task(const AttentionProblem<T>& problem, const AttentionGradient<T>& gradient,
                             int64_t task);

// sum over G in order, rounded to T, for positions [first, last) of B * L.
template <class T>
void sum_shared_gradient(const AttentionProblem<T>& problem, const float* dk_shared_BGLR, int64_t first,
                         int64_t last, T* dk_shared_BLR);

}  // namespace milepost::train
