// Finding the entries of a header by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/format/safetensors.h"

namespace milepost::safetensors {

// Sorted by a hash and, where that is equal, by name: nobody can choose names that make this slow.
// The entries must stay as they are while it lives. Cost: n log n to make, log n a lookup, 16 bytes an entry.
class NameIndex {
 public:
  explicit NameIndex(std::vector<Entry>* entries) : entries_(entries) {
    order_.reserve(entries->size());
    for (size_t i = 0; i < entries->size(); ++i) order_.push_back({hash((*entries)[i].name), i});
    std::sort(order_.begin(), order_.end(), [&](const Slot& a, const Slot& b) {
      return a.hash != b.hash ? a.hash < b.hash : name(a) < name(b);
    });
  }

  // A name that more than one entry has, or nullptr.
  const std::string* duplicate() const {
    const auto twice = std::adjacent_find(order_.begin(), order_.end(), [&](const Slot& a, const Slot& b) {
      return a.hash == b.hash && name(a) == name(b);
    });
    return twice == order_.end() ? nullptr : &name(*twice);
  }

  Entry* find(std::string_view wanted) const {
    const size_t wanted_hash = hash(wanted);
    const auto it =
        std::lower_bound(order_.begin(), order_.end(), wanted, [&](const Slot& slot, std::string_view text) {
          return slot.hash != wanted_hash ? slot.hash < wanted_hash : name(slot) < text;
        });
    return it != order_.end() && name(*it) == wanted ? &(*entries_)[it->index] : nullptr;
  }

 private:
  struct Slot {
    size_t hash, index;
  };
  static size_t hash(std::string_view text) { return std::hash<std::string_view>{}(text); }
  const std::string& name(const Slot& slot) const { return (*entries_)[slot.index].name; }

  std::vector<Entry>* entries_;
  std::vector<Slot> order_;
};

}  // namespace milepost::safetensors
