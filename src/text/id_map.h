// Two flat hash tables for the inner loops of encoding: strings to ids, and pairs of ids to merges. Built
// once, then read by any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace milepost::text {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

using TokenIds = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

struct Merge {
  uint32_t rank = 0;
  int32_t id = -1;  // of the merged token
};

// Open addressing with linear probing, at most half full: a lookup costs one cache line in most cases.
class MergeTable {
 public:
  explicit MergeTable(size_t num_merges) {
    size_t capacity = 16;
    while (capacity < 2 * num_merges) capacity *= 2;
    slots_.resize(capacity);
  }

  // A pair that occurs twice has the later merge. At most `num_merges` different ones.
  void insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t slot = slot_of(key);
    while (slots_[slot].merge.id >= 0 && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {key, merge};
  }

  // id -1 when the two do not merge.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key || slots_[slot].merge.id < 0) return slots_[slot].merge;
    }
  }

 private:
  struct Slot {
    uint64_t key = ~uint64_t{0};
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace milepost::text
