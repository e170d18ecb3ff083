// Which rows go to which expert: (token, slot) pairs in the order of their experts, ties in their own order.
#pragma once

#include <cstdint>
#include <vector>

namespace milepost::train {

// Rows [begin, end) of one expert, for one task.
struct ExpertRows {
  int64_t expert, begin, end;
};

struct ExpertOrder {
  int64_t num_tokens = 0, top_k = 0;
  std::vector<int64_t> first_row;      // of each expert; one more entry, the number of rows
  std::vector<int64_t> pair_of_row;    // token * top_k + slot
  std::vector<int64_t> rows_of_token;  // top_k rows a token, ascending

  int64_t num_rows() const { return static_cast<int64_t>(pair_of_row.size()); }
  int64_t num_experts() const { return static_cast<int64_t>(first_row.size()) - 1; }
  int64_t num_rows_of(int64_t expert) const {
    return first_row[static_cast<size_t>(expert) + 1] - first_row[static_cast<size_t>(expert)];
  }
  int64_t token_of_row(int64_t row) const { return pair_of_row[static_cast<size_t>(row)] / top_k; }
  // All rows, cut so that no task has more than `max_rows`; experts without rows have no task.
  std::vector<ExpertRows> tasks(int64_t max_rows) const;
};

// A stable counting sort. Throws ValueError for an id outside [0, num_experts).
ExpertOrder order_by_expert(const int64_t* ids_TK, int64_t num_tokens, int64_t top_k, int64_t num_experts);

}  // namespace milepost::train
