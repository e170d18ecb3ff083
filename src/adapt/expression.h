// The small arithmetic that key tables are written in: integers, names of dimensions, + - * /, comparisons,
// ! && ||, parentheses; comparisons give 0 or 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/tensor/box.h"

namespace milepost::adapt {

// Names with values; a name set again hides the earlier value.
class Variables {
 public:
  explicit Variables(std::vector<std::pair<std::string_view, int64_t>> values = {})
      : values_(std::move(values)) {}
  void set(std::string_view name, int64_t value) { values_.emplace_back(name, value); }
  // Throws ValueError for an unknown name.
  int64_t get(std::string_view name) const;

 private:
  std::vector<std::pair<std::string_view, int64_t>> values_;
};

// Throws ValueError that quotes the expression: tables are ours, so this is a fault of the program; or, with
// kTooLarge, sizes that no model has.
int64_t evaluate(std::string_view expression, const Variables& variables);

// "n_heads * head_dim, dim" -> dimensions.
Dims evaluate_dims(std::string_view expressions, const Variables& variables);

// `pattern` with every "{expression}" replaced by its value.
std::string fill(std::string_view pattern, const Variables& variables);

}  // namespace milepost::adapt
