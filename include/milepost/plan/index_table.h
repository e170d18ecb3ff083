// IndexTable: finding records by content when the records themselves lie in an array elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace milepost {

// A set of array indexes, found by a hash and an equality that the caller supplies: 8 bytes a slot, no copy
// of any key. Copies and moves as the vector that it is. Threads: const or one writer.
class IndexTable {
 public:
  // The index stored for an equal record; else stores `index` and returns it. `equal(i)` says whether record
  // i equals the wanted one; it is asked only about records of the same hash.
  template <typename Equal>
  int32_t find_or_add(uint64_t wide_hash, int32_t index, Equal&& equal) {
    if ((used_ + 1) * 5 > slots_.size() * 4) grow();
    const auto hash = static_cast<uint32_t>(wide_hash ^ wide_hash >> 32);
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].index >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].hash == hash && equal(slots_[at].index)) return slots_[at].index;
    }
    slots_[at] = {hash, index};
    ++used_;
    return index;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t index = -1;  // -1: free
  };

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.index < 0) continue;
      size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].index >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most four fifths in use
  size_t used_ = 0;
};

}  // namespace milepost
