// Folding: a million entries as the few lines that differ.
//
// Names are cut at dots into a tree. Siblings that differ only in a number ("3", "dp_rank_3") and whose
// subtrees are alike in names, kinds, dtypes and shapes become one line with a range:
// layers.[0-59].attention.wq.weight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost::cli {

// What is folded: a tensor or an object (which has neither dtype nor shape).
struct TreeEntry {
  std::string_view name;
  bool is_object = false;
  DType dtype = DType::kFloat32;
  DimsView shape = {};
  int64_t bytes = 0;
};

struct TreeLine {
  std::string name;        // escaped for terminals, with ranges
  const TreeEntry* first;  // of those that the line stands for
  int64_t count = 1;       // how many it stands for
};

// In order of first appearance. Neighbours below one parent that are alike become one line, "{exp_avg,
// exp_avg_sq}" or, for four and more objects, "{fused, foreach, lr, ...}"; a subtree of many objects and
// nothing else becomes "param_groups.*". Lines look at `entries`. Cost: the names' length, times a map.
std::vector<TreeLine> fold(const std::vector<TreeEntry>& entries);

// "0-59", "0,2,4-7"; the numbers ascend. At most about 40 characters, then "..." and the last number.
std::string ranges_text(const std::vector<int64_t>& numbers);

}  // namespace milepost::cli
