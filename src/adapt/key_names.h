// The tensors of a checkpoint by name, and which of them have been placed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "milepost/catalog/catalog.h"

namespace milepost::adapt {

class TensorsByName {
 public:
  TensorsByName(const Catalog& catalog, std::span<const int64_t> tensors)
      : catalog_(catalog), order_(tensors) {
    for (int64_t tensor : tensors) by_name_.emplace(info(tensor).name, tensor);
  }

  const Catalog::Tensor& info(int64_t tensor) const {
    return catalog_.tensors()[static_cast<size_t>(tensor)];
  }
  std::optional<int64_t> find(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? std::nullopt : std::optional(it->second);
  }
  void mark_placed(int64_t tensor) { placed_.emplace(tensor, true); }
  // Those not marked, in order.
  std::vector<int64_t> unplaced() const {
    std::vector<int64_t> out;
    for (int64_t tensor : order_) {
      if (!placed_.contains(tensor)) out.push_back(tensor);
    }
    return out;
  }

 private:
  const Catalog& catalog_;
  std::span<const int64_t> order_;
  std::unordered_map<std::string_view, int64_t> by_name_;
  std::unordered_map<int64_t, bool> placed_;
};

// "a, b, c and 7 more": at most `most` names.
std::string listed(const std::vector<std::string>& names, size_t most = 12);

// The number after `prefix` in `name`, when a dot follows it: ("model.layers.12.x", "model.layers.") -> 12.
std::optional<int64_t> number_after(std::string_view name, std::string_view prefix);

}  // namespace milepost::adapt
