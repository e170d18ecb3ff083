#include <algorithm>
#include <cstring>

#include "train/ops/kernels/attention_blocks.h"
#include "train/ops/kernels/attention_tiles.h"
#include "train/ops/kernels/gemm.h"
#include "train/ops/kernels/pack.h"
#include "train/ops/kernels/score_rows.h"
#include "train/ops/kernels/scratch.h"

namespace milepost::train {
namespace {

constexpr int64_t kQueryChunk = 512;  // queries whose operands are packed at a time
constexpr int64_t kQueryBlock = 128;  // of them, against one block of keys
constexpr int64_t kKeyBlock = 128;
// Of tiles of keys by queries; not a power of two, which would put columns into few sets of the cache.
constexpr int64_t kTileWidth = kQueryBlock + 16;

struct BackwardScratch {
  Scratch key_rows, value_rows, key_panels;
  Scratch query_rows, out_rows, query_columns, query_panels, out_columns, out_panels;
  Scratch lse2, delta, dq, dk, dv;
};

// One key head and the query heads that use it.
template <class T>
class BackwardTask {
 public:
  BackwardTask(const AttentionProblem<T>& problem, const AttentionGradient<T>& gradient, int64_t batch,
               int64_t key_head);
  void run();

 private:
  void load_queries(int64_t head, int64_t begin, int64_t end);
  void load_keys(int64_t begin, int64_t end);
  // The loaded keys against the loaded queries [begin, end).
  void visit_block(int64_t begin, int64_t end);
  void visit_keys(int64_t key, int64_t num_keys, int64_t begin, int64_t end);
  void visit_queries(int64_t query, int64_t num_queries, int64_t block_begin);
  void write_queries(int64_t head);
  void write_keys();

  const AttentionProblem<T>& p_;
  const AttentionGradient<T>& g_;
  const int64_t batch_, key_head_, group_;
  const int64_t dim_units_, value_units_, dim_width_, value_width_;  // widths: of float rows, whole panels
  const int32_t *begin_, *end_;
  const float scale2_;
  BackwardScratch& scratch_;
  T *key_rows_, *value_rows_, *query_rows_, *out_rows_;
  uint32_t *key_panels_, *query_columns_, *query_panels_, *out_columns_, *out_panels_;
  float *lse2_, *delta_, *dq_, *dk_, *dv_;
  int64_t query_begin_ = 0, query_end_ = 0, key_begin_ = 0, key_end_ = 0;
  alignas(64) float scores_[kGroupRows * kTileWidth];
  alignas(64) float d_probabilities_[kGroupRows * kTileWidth];
  alignas(64) T probabilities_[kGroupRows * kTileWidth];
  alignas(64) T d_scores_[kKeyBlock * kTileWidth];
  // d_scores_ with pairs of keys as units, which dq's product needs of bfloat16.
  alignas(64) uint32_t d_score_pairs_[sizeof(T) == 2 ? kKeyBlock / 2 * kTileWidth : 1];
};

BackwardScratch& thread_scratch() {
  thread_local BackwardScratch scratch;
  return scratch;
}

template <class T>
BackwardTask<T>::BackwardTask(const AttentionProblem<T>& problem, const AttentionGradient<T>& gradient,
                              int64_t batch, int64_t key_head)
    : p_(problem),
      g_(gradient),
      batch_(batch),
      key_head_(key_head),
      group_(problem.heads / problem.key_heads),
      dim_units_(num_units<T>(problem.dim)),
      value_units_(num_units<T>(problem.value_dim)),
      dim_width_(round_up(problem.dim, kPanelColumns)),
      value_width_(round_up(problem.value_dim, kPanelColumns)),
      begin_(problem.begin_BL + batch * problem.length),
      end_(problem.end_BL + batch * problem.length),
      scale2_(problem.scale * kLog2E),
      scratch_(thread_scratch()) {
  const int64_t row_width = dim_units_ * kPerUnit<T>, out_width = value_units_ * kPerUnit<T>;
  key_rows_ = scratch_.key_rows.get<T>(kKeyBlock * row_width);
  value_rows_ = scratch_.value_rows.get<T>(kKeyBlock * out_width);
  key_panels_ = scratch_.key_panels.get<uint32_t>(num_units<T>(kKeyBlock) * dim_width_);
  query_rows_ = scratch_.query_rows.get<T>(kQueryChunk * row_width);
  out_rows_ = scratch_.out_rows.get<T>(kQueryChunk * out_width);
  query_columns_ = scratch_.query_columns.get<uint32_t>(kQueryChunk * dim_units_);
  query_panels_ = scratch_.query_panels.get<uint32_t>(num_units<T>(kQueryChunk) * dim_width_);
  out_columns_ = scratch_.out_columns.get<uint32_t>(kQueryChunk * value_units_);
  out_panels_ = scratch_.out_panels.get<uint32_t>(num_units<T>(kQueryChunk) * value_width_);
  lse2_ = scratch_.lse2.get<float>(kQueryChunk);
  delta_ = scratch_.delta.get<float>(kQueryChunk);
  dq_ = scratch_.dq.get<float>(kQueryChunk * dim_width_);
  dk_ = scratch_.dk.get<float>(problem.length * dim_width_);
  dv_ = scratch_.dv.get<float>(problem.length * value_width_);
}

template <class T>
void BackwardTask<T>::run() {
  std::fill_n(dk_, p_.length * dim_width_, 0.0F);
  std::fill_n(dv_, p_.length * value_width_, 0.0F);
  for (int64_t i = 0; i < group_; ++i) {
    const int64_t head = key_head_ * group_ + i;
    for (int64_t begin = 0; begin < p_.length; begin += kQueryChunk) {
      const int64_t end = std::min(begin + kQueryChunk, p_.length);
      load_queries(head, begin, end);
      for (int64_t key = begin_[begin] / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
        load_keys(key, std::min(key + kKeyBlock, end));
        for (int64_t block = std::max(begin, key); block < end; block += kQueryBlock) {
          visit_block(block, std::min(block + kQueryBlock, end));
        }
      }
      write_queries(head);
    }
  }
  write_keys();
}

template <class T>
void BackwardTask<T>::load_queries(int64_t head, int64_t begin, int64_t end) {
  query_begin_ = begin;
  query_end_ = end;
  const int64_t count = end - begin, row_width = dim_units_ * kPerUnit<T>,
                out_width = value_units_ * kPerUnit<T>;
  copy_rows(p_.q, {batch_, head}, begin, count, p_.dim, query_rows_, row_width, 0);
  pad_rows(query_rows_, count, row_width, p_.dim);
  pack_transposed(query_rows_, dim_units_, count, dim_units_, query_columns_);
  pack_rows(query_rows_, row_width, count, p_.dim, query_panels_);
  copy_rows(g_.d_out, {batch_, head}, begin, count, p_.value_dim, out_rows_, out_width, 0);
  pad_rows(out_rows_, count, out_width, p_.value_dim);
  pack_transposed(out_rows_, value_units_, count, value_units_, out_columns_);
  pack_rows(out_rows_, out_width, count, p_.value_dim, out_panels_);
  std::copy_n(g_.lse2_BHL + (batch_ * p_.heads + head) * p_.length + begin, count, lse2_);
  for (int64_t i = 0; i < count; ++i) {
    const T* out = g_.out.at(batch_, begin + i, head);
    if (i + kRowsAhead < count)
      fetch_row(out + kRowsAhead * g_.out.row_stride, p_.value_dim * int64_t{sizeof(T)});
    delta_[i] = dot_row(out, out_rows_ + i * out_width, p_.value_dim);
  }
  const int64_t padding = round_up(count, kPanelColumns) - count;
  std::fill_n(lse2_ + count, padding, 0.0F);
  std::fill_n(delta_ + count, padding, 0.0F);
  std::fill_n(dq_, count * dim_width_, 0.0F);
}

template <class T>
void BackwardTask<T>::load_keys(int64_t begin, int64_t end) {
  key_begin_ = begin;
  key_end_ = end;
  const int64_t count = end - begin, row_width = dim_units_ * kPerUnit<T>, own_dim = p_.dim - p_.shared_dim;
  copy_rows(p_.k, {batch_, key_head_}, begin, count, own_dim, key_rows_, row_width, 0);
  copy_rows(p_.k_shared, {batch_, 0}, begin, count, p_.shared_dim, key_rows_, row_width, own_dim);
  pad_rows(key_rows_, count, row_width, p_.dim);
  pack_rows(key_rows_, row_width, count, p_.dim, key_panels_);
  copy_rows(p_.v, {batch_, key_head_}, begin, count, p_.value_dim, value_rows_, value_units_ * kPerUnit<T>,
            0);
  pad_rows(value_rows_, count, value_units_ * kPerUnit<T>, p_.value_dim);
}

template <class T>
void BackwardTask<T>::visit_block(int64_t begin, int64_t end) {
  if (begin_[begin] >= key_end_) return;
  for (int64_t key = key_begin_; key < std::min(key_end_, end); key += kGroupRows) {
    visit_keys(key, std::min(kGroupRows, key_end_ - key), begin, end);
  }
  for (int64_t query = begin; query < end; query += kGroupRows) {
    visit_queries(query, std::min(kGroupRows, end - query), begin);
  }
}

// Up to eight keys: their scores with the queries [begin, end), dv and dk.
template <class T>
void BackwardTask<T>::visit_keys(int64_t key, int64_t num_keys, int64_t begin, int64_t end) {
  const int64_t seen_begin = std::max(begin, key),
                seen_end = std::min<int64_t>(end, end_[key + num_keys - 1]);
  if (seen_begin >= seen_end) return;
  const int64_t base = begin + (seen_begin - begin) / kPanelColumns * kPanelColumns;
  const int64_t columns = round_up(seen_end - base, kPanelColumns);
  const int64_t first = base - query_begin_;  // of the loaded queries
  const int64_t key_at = key - key_begin_;
  gemm_block<T>(num_keys, columns, dim_units_, {key_rows_ + key_at * dim_units_ * kPerUnit<T>, dim_units_, 1},
                {query_columns_ + first * dim_units_, dim_units_ * kPanelColumns}, scores_, kTileWidth,
                Sum::kReplace);
  gemm_block<T>(num_keys, columns, value_units_,
                {value_rows_ + key_at * value_units_ * kPerUnit<T>, value_units_, 1},
                {out_columns_ + first * value_units_, value_units_ * kPanelColumns}, d_probabilities_,
                kTileWidth, Sum::kReplace);
  T* d_scores = d_scores_ + key_at * kTileWidth + base - begin;
  for (int64_t i = 0; i < num_keys; ++i) {
    const Visible visible{std::max<int64_t>(key + i - base, 0), std::min<int64_t>(end, end_[key + i]) - base};
    gradient_row(scores_ + i * kTileWidth, d_probabilities_ + i * kTileWidth, lse2_ + first, delta_ + first,
                 columns, visible, scale2_, p_.scale, probabilities_ + i * kTileWidth,
                 d_scores + i * kTileWidth);
  }
  if constexpr (sizeof(T) == 2) {
    constexpr BFloat16 kNoKey[kTileWidth] = {};
    uint32_t* pairs = d_score_pairs_ + key_at / 2 * kTileWidth + base - begin;
    for (int64_t i = 0; i < num_keys; i += 2) {
      interleave(d_scores + i * kTileWidth, i + 1 < num_keys ? d_scores + (i + 1) * kTileWidth : kNoKey,
                 columns, pairs + i / 2 * kTileWidth);
    }
  }
  const int64_t query_units = num_units<T>(seen_end - base), panel_at = first / kPerUnit<T> * kPanelColumns;
  const int64_t panel_stride = num_units<T>(query_end_ - query_begin_) * kPanelColumns;
  gemm_block<T>(num_keys, p_.value_dim, query_units, {probabilities_, kTileWidth / kPerUnit<T>, 1},
                {out_panels_ + panel_at, panel_stride}, dv_ + key * value_width_, value_width_, Sum::kAdd);
  gemm_block<T>(num_keys, p_.dim, query_units, {d_scores, kTileWidth / kPerUnit<T>, 1},
                {query_panels_ + panel_at, panel_stride}, dk_ + key * dim_width_, dim_width_, Sum::kAdd);
}

// Up to eight queries: dq, out of the scores' gradients that visit_keys left.
template <class T>
void BackwardTask<T>::visit_queries(int64_t query, int64_t num_queries, int64_t block_begin) {
  // Whole groups of keys, of which visit_keys has written the part that these queries need.
  const int64_t begin = std::max<int64_t>(key_begin_, begin_[query] / kGroupRows * kGroupRows);
  const int64_t end = std::min(key_end_, query + num_queries);
  if (begin >= end) return;
  const int64_t first = (begin - key_begin_) / kPerUnit<T> * kTileWidth + query - block_begin;
  const void* left = nullptr;
  if constexpr (sizeof(T) == 2) {
    left = d_score_pairs_ + first;
  } else {
    left = d_scores_ + first;
  }
  gemm_block<T>(num_queries, p_.dim, num_units<T>(end - begin), {left, 1, kTileWidth},
                {key_panels_ + (begin - key_begin_) / kPerUnit<T> * kPanelColumns,
                 num_units<T>(key_end_ - key_begin_) * kPanelColumns},
                dq_ + (query - query_begin_) * dim_width_, dim_width_, Sum::kAdd);
}

template <class T>
void BackwardTask<T>::write_queries(int64_t head) {
  for (int64_t i = query_begin_; i < query_end_; ++i) {
    round_row(dq_ + (i - query_begin_) * dim_width_, p_.dim, 1.0F, g_.dq.at(batch_, i, head));
  }
}

template <class T>
void BackwardTask<T>::write_keys() {
  const int64_t own_dim = p_.dim - p_.shared_dim;
  for (int64_t i = 0; i < p_.length; ++i) {
    const float* dk = dk_ + i * dim_width_;
    round_row(dk, own_dim, 1.0F, g_.dk.at(batch_, i, key_head_));
    round_row(dv_ + i * value_width_, p_.value_dim, 1.0F, g_.dv.at(batch_, i, key_head_));
    if (p_.shared_dim == 0) continue;
    std::copy_n(dk + own_dim, p_.shared_dim,
                g_.dk_shared_BGLR + ((batch_ * p_.key_heads + key_head_) * p_.length + i) * p_.shared_dim);
  }
}

}  // namespace

template <class T>
int64_t num_backward_tasks(const AttentionProblem<T>& problem) {
  return problem.batch * problem.key_heads;
}

template <class T>
void attention_backward_task(const AttentionProblem<T>& problem, const AttentionGradient<T>& gradient,
                             int64_t task) {
  BackwardTask<T>(problem, gradient, task / problem.key_heads, task % problem.key_heads).run();
}

template <class T>
void sum_shared_gradient(const AttentionProblem<T>& problem, const float* dk_shared_BGLR, int64_t first,
                         int64_t last, T* dk_shared_BLR) {
  const int64_t dim = problem.shared_dim, head_stride = problem.length * dim;
  thread_local Scratch scratch;
  float* sum = scratch.get<float>(dim);
  for (int64_t i = first; i < last; ++i) {
    const int64_t batch = i / problem.length, row = i % problem.length;
    const float* head = dk_shared_BGLR + batch * problem.key_heads * head_stride + row * dim;
    std::fill_n(sum, dim, 0.0F);
    for (int64_t g = 0; g < problem.key_heads; ++g, head += head_stride) {
      for (int64_t r = 0; r < dim; ++r) sum[r] += head[r];
    }
    round_row(sum, dim, 1.0F, dk_shared_BLR + i * dim);
  }
}

#define MILEPOST_INSTANTIATE(T)                                                                     \
  template int64_t num_backward_tasks<T>(const AttentionProblem<T>&);                               \
  template void attention_backward_task<T>(const AttentionProblem<T>&, const AttentionGradient<T>&, \
                                           int64_t);                                                \
  template void sum_shared_gradient<T>(const AttentionProblem<T>&, const float*, int64_t, int64_t, T*);
MILEPOST_INSTANTIATE(float)
MILEPOST_INSTANTIATE(BFloat16)
#undef MILEPOST_INSTANTIATE

}  // namespace milepost::train
