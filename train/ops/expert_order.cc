#include "train/ops/expert_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/base/error.h"

namespace milepost::train {

std::vector<ExpertRows> ExpertOrder::tasks(int64_t max_rows) const {
  std::vector<ExpertRows> tasks;
  for (int64_t expert = 0; expert < num_experts(); ++expert) {
    const int64_t end = first_row[static_cast<size_t>(expert) + 1];
    for (int64_t row = first_row[static_cast<size_t>(expert)]; row < end; row += max_rows) {
      tasks.push_back({expert, row, std::min(end, row + max_rows)});
    }
  }
  return tasks;
}

ExpertOrder order_by_expert(const int64_t* ids_TK, int64_t num_tokens, int64_t top_k, int64_t num_experts) {
  ExpertOrder order{num_tokens, top_k, std::vector<int64_t>(static_cast<size_t>(num_experts) + 1), {}, {}};
  const auto num_pairs = static_cast<size_t>(num_tokens * top_k);
  for (size_t pair = 0; pair < num_pairs; ++pair) {
    if (ids_TK[pair] < 0 || ids_TK[pair] >= num_experts) {
      throw ValueError(fmt::format("token {} is sent to expert {} of {}", static_cast<int64_t>(pair) / top_k,
                                   ids_TK[pair], num_experts));
    }
    ++order.first_row[static_cast<size_t>(ids_TK[pair]) + 1];
  }
  for (size_t expert = 1; expert < order.first_row.size(); ++expert) {
    order.first_row[expert] += order.first_row[expert - 1];
  }
  std::vector<int64_t> next = order.first_row;
  order.pair_of_row.resize(num_pairs);
  order.rows_of_token.resize(num_pairs);
  for (size_t pair = 0; pair < num_pairs; ++pair) {
    const int64_t row = next[static_cast<size_t>(ids_TK[pair])]++;
    order.pair_of_row[static_cast<size_t>(row)] = static_cast<int64_t>(pair);
    order.rows_of_token[pair] = row;
  }
  for (int64_t token = 0; token < num_tokens; ++token) {
    const auto begin = order.rows_of_token.begin() + token * top_k;
    std::sort(begin, begin + top_k);
  }
  return order;
}

}  // namespace milepost::train
