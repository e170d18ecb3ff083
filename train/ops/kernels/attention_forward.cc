#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "train/ops/kernels/attention_blocks.h"
#include "train/ops/kernels/attention_tiles.h"
#include "train/ops/kernels/gemm.h"
#include "train/ops/kernels/pack.h"
#include "train/ops/kernels/score_rows.h"
#include "train/ops/kernels/scratch.h"

namespace milepost::train {
namespace {

// Keys of a block and their values, 320 KB in float32 for 192 + 128 features, stay in the second-level cache
// while all of a task's queries pass over them.
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kTaskRows = 512;  // queries of a task, over its heads

struct ForwardScratch {
  Scratch key_rows, value_rows, key_panels, value_panels, queries, outputs, rows;
};

// The queries [first, last) of the heads that share one key head.
template <class T>
class ForwardTask {
 public:
  ForwardTask(const AttentionProblem<T>& problem, const AttentionResult<T>& result, int64_t batch,
              int64_t key_head, int64_t first, int64_t last);
  void run();

 private:
  void load_queries();
  void load_keys(int64_t begin, int64_t end);
  void visit_keys(int64_t head, int64_t row, int64_t rows, int64_t key_begin, int64_t key_end);
  void write_results();

  const AttentionProblem<T>& p_;
  const AttentionResult<T>& result_;
  const int64_t batch_, key_head_, first_, last_;
  const int64_t group_, num_rows_, dim_units_, value_width_;
  const int32_t* begin_;
  float scale2_;
  T* queries_;
  T* key_rows_;
  T* value_rows_;
  float* outputs_;
  RunningRow* running_;
  uint32_t* key_panels_;
  uint32_t* value_panels_;
  int64_t value_panel_stride_ = 0;
  alignas(64) float scores_[kGroupRows * kKeyBlock];
  alignas(64) T probabilities_[kGroupRows * kKeyBlock];
};

template <class T>
ForwardTask<T>::ForwardTask(const AttentionProblem<T>& problem, const AttentionResult<T>& result,
                            int64_t batch, int64_t key_head, int64_t first, int64_t last)
    : p_(problem),
      result_(result),
      batch_(batch),
      key_head_(key_head),
      first_(first),
      last_(last),
      group_(problem.heads / problem.key_heads),
      num_rows_(last - first),
      dim_units_(num_units<T>(problem.dim)),
      value_width_(round_up(problem.value_dim, kPanelColumns)),
      begin_(problem.begin_BL + batch * problem.length),
      scale2_(problem.scale * kLog2E) {
  thread_local ForwardScratch scratch;
  const int64_t row_width = dim_units_ * kPerUnit<T>;
  queries_ = scratch.queries.get<T>(group_ * num_rows_ * row_width);
  outputs_ = scratch.outputs.get<float>(group_ * num_rows_ * value_width_);
  running_ = scratch.rows.get<RunningRow>(group_ * num_rows_);
  key_rows_ = scratch.key_rows.get<T>(kKeyBlock * row_width);
  value_rows_ = scratch.value_rows.get<T>(kKeyBlock * problem.value_dim);
  key_panels_ = scratch.key_panels.get<uint32_t>(kKeyBlock * dim_units_);
  value_panels_ = scratch.value_panels.get<uint32_t>(num_units<T>(kKeyBlock) * value_width_);
}

template <class T>
void ForwardTask<T>::run() {
  load_queries();
  for (int64_t begin = begin_[first_] / kKeyBlock * kKeyBlock; begin < last_; begin += kKeyBlock) {
    const int64_t end = std::min(begin + kKeyBlock, last_);
    load_keys(begin, end);
    for (int64_t head = 0; head < group_; ++head) {
      for (int64_t row = std::max(first_, begin / kGroupRows * kGroupRows); row < last_; row += kGroupRows) {
        visit_keys(head, row, std::min(kGroupRows, last_ - row), begin, end);
      }
    }
  }
  write_results();
}

template <class T>
void ForwardTask<T>::load_queries() {
  const int64_t row_width = dim_units_ * kPerUnit<T>;
  for (int64_t head = 0; head < group_; ++head) {
    copy_rows(p_.q, {batch_, key_head_ * group_ + head}, first_, num_rows_, p_.dim,
              queries_ + head * num_rows_ * row_width, row_width, 0);
    pad_rows(queries_ + head * num_rows_ * row_width, num_rows_, row_width, p_.dim);
  }
  std::fill_n(outputs_, group_ * num_rows_ * value_width_, 0.0F);
  std::fill_n(running_, group_ * num_rows_, RunningRow{-std::numeric_limits<float>::infinity(), 0.0F});
}

template <class T>
void ForwardTask<T>::load_keys(int64_t begin, int64_t end) {
  const int64_t row_width = dim_units_ * kPerUnit<T>, own_dim = p_.dim - p_.shared_dim;
  copy_rows(p_.k, {batch_, key_head_}, begin, end - begin, own_dim, key_rows_, row_width, 0);
  copy_rows(p_.k_shared, {batch_, 0}, begin, end - begin, p_.shared_dim, key_rows_, row_width, own_dim);
  pad_rows(key_rows_, end - begin, row_width, p_.dim);
  pack_transposed(key_rows_, dim_units_, end - begin, dim_units_, key_panels_);
  copy_rows(p_.v, {batch_, key_head_}, begin, end - begin, p_.value_dim, value_rows_, p_.value_dim, 0);
  pack_rows(value_rows_, p_.value_dim, end - begin, p_.value_dim, value_panels_);
  value_panel_stride_ = num_units<T>(end - begin) * kPanelColumns;
}

// Up to eight queries against the block of keys that is loaded.
template <class T>
void ForwardTask<T>::visit_keys(int64_t head, int64_t row, int64_t rows, int64_t key_begin, int64_t key_end) {
  const int64_t seen_begin = std::max<int64_t>(key_begin, begin_[row]),
                seen_end = std::min(key_end, row + rows);
  if (seen_begin >= seen_end) return;
  // Columns count from `base`, a whole panel.
  const int64_t base = key_begin + (seen_begin - key_begin) / kPanelColumns * kPanelColumns;
  const int64_t columns = round_up(seen_end - base, kPanelColumns);
  const int64_t at = head * num_rows_ + row - first_;
  gemm_block<T>(rows, columns, dim_units_, {queries_ + at * dim_units_ * kPerUnit<T>, dim_units_, 1},
                {key_panels_ + (base - key_begin) * dim_units_, dim_units_ * kPanelColumns}, scores_,
                kKeyBlock, Sum::kReplace);
  T* probabilities = probabilities_;
  if constexpr (sizeof(T) == sizeof(float)) probabilities = scores_;
  float* outputs = outputs_ + at * value_width_;
  for (int64_t i = 0; i < rows; ++i) {
    const Visible visible{std::max<int64_t>(begin_[row + i] - base, 0),
                          std::min(row + i + 1 - base, key_end - base)};
    const float correction = softmax_row(scores_ + i * kKeyBlock, columns, visible, scale2_,
                                         &running_[at + i], probabilities + i * kKeyBlock);
    if (correction != 1.0F) scale_row(outputs + i * value_width_, value_width_, correction);
  }
  gemm_block<T>(rows, value_width_, num_units<T>(seen_end - base),
                {probabilities, kKeyBlock / kPerUnit<T>, 1},
                {value_panels_ + (base - key_begin) / kPerUnit<T> * kPanelColumns, value_panel_stride_},
                outputs, value_width_, Sum::kAdd);
}

template <class T>
void ForwardTask<T>::write_results() {
  for (int64_t i = 0; i < group_; ++i) {
    const int64_t head = key_head_ * group_ + i;
    float* lse2 = result_.lse2_BHL + (batch_ * p_.heads + head) * p_.length;
    for (int64_t row = first_; row < last_; ++row) {
      const int64_t at = i * num_rows_ + row - first_;
      round_row(outputs_ + at * value_width_, p_.value_dim, 1.0F / running_[at].sum,
                result_.out.at(batch_, row, head));
      lse2[row] = running_[at].max + std::log2(running_[at].sum);
    }
  }
}

template <class T>
int64_t rows_of_task(const AttentionProblem<T>& problem) {
  const int64_t group = problem.heads / problem.key_heads;
  return std::max<int64_t>(64, kTaskRows / group / kGroupRows * kGroupRows);
}

}  // namespace

template <class T>
int64_t num_forward_tasks(const AttentionProblem<T>& problem) {
  const int64_t rows = rows_of_task(problem);
  return problem.batch * problem.key_heads * ((problem.length + rows - 1) / rows);
}

template <class T>
void attention_forward_task(const AttentionProblem<T>& problem, const AttentionResult<T>& result,
                            int64_t task) {
  const int64_t rows = rows_of_task(problem), parts = (problem.length + rows - 1) / rows;
  // The longest first: the last queries see most keys.
  const int64_t part = parts - 1 - task / (problem.batch * problem.key_heads);
  const int64_t head = task % (problem.batch * problem.key_heads);
  ForwardTask<T>(problem, result, head / problem.key_heads, head % problem.key_heads, part * rows,
                 std::min(problem.length, (part + 1) * rows))
      .run();
}

#define MILEPOST_INSTANTIATE(T)                                      \
  template int64_t num_forward_tasks<T>(const AttentionProblem<T>&); \
  template void attention_forward_task<T>(const AttentionProblem<T>&, const AttentionResult<T>&, int64_t);
MILEPOST_INSTANTIATE(float)
MILEPOST_INSTANTIATE(BFloat16)
#undef MILEPOST_INSTANTIATE

}  // namespace milepost::train
