// WordCache: the ids of pieces that came by lately. 16 MiB in two tables of fixed slots; a piece replaces
// what hashes to the same slot, so that a lookup costs one cache miss and nothing is ever cleaned up.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace milepost::text {

class WordCache {
 public:
  // Appends the ids of `piece` and returns true when it is known.
  bool find(std::string_view piece, std::vector<int32_t>* ids) {
    if (piece.size() <= ShortSlot::kKeyBytes) return short_.find(piece, ids);
    if (piece.size() <= LongSlot::kKeyBytes) return long_.find(piece, ids);
    return false;
  }

  // `ids`: `count` of them. Pieces and ids that are too long for a slot are not kept.
  void insert(std::string_view piece, const int32_t* ids, size_t count) {
    if (piece.size() <= ShortSlot::kKeyBytes && count <= ShortSlot::kIds) {
      short_.insert(piece, ids, count);
    } else if (piece.size() > ShortSlot::kKeyBytes && piece.size() <= LongSlot::kKeyBytes &&
               count <= LongSlot::kIds) {
      long_.insert(piece, ids, count);
    }
  }

 private:
  template <size_t KeyBytes, size_t Ids>
  struct Slot {
    static constexpr size_t kKeyBytes = KeyBytes, kIds = Ids;
    uint8_t key_size = 0, count = 0;  // key_size 0: empty
    char key[KeyBytes];
    int32_t ids[Ids];
  };
  using ShortSlot = Slot<30, 8>;   // 64 bytes
  using LongSlot = Slot<126, 32>;  // 256 bytes

  // Eight bytes at a time, the last ones overlapping.
  static uint64_t hash(std::string_view piece) {
    constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;
    uint64_t h = piece.size() * kMix;
    const auto take = [&](uint64_t word) {
      h = (h ^ word) * kMix;
      h ^= h >> 29;
    };
    uint64_t word = 0;
    if (piece.size() < sizeof(word)) {
      for (const char c : piece) word = word << 8 | static_cast<uint8_t>(c);
      take(word);
      return h;
    }
    for (size_t at = 0; at + sizeof(word) < piece.size(); at += sizeof(word)) {
      std::memcpy(&word, piece.data() + at, sizeof(word));
      take(word);
    }
    std::memcpy(&word, piece.data() + piece.size() - sizeof(word), sizeof(word));
    take(word);
    return h;
  }

  template <typename S, size_t Slots>
  class Table {
   public:
    bool find(std::string_view piece, std::vector<int32_t>* ids) {
      const S& slot = slots_[hash(piece) >> kShift];
      if (slot.key_size != piece.size() || std::memcmp(slot.key, piece.data(), piece.size()) != 0)
        return false;
      ids->insert(ids->end(), slot.ids, slot.ids + slot.count);
      return true;
    }
    void insert(std::string_view piece, const int32_t* ids, size_t count) {
      S& slot = slots_[hash(piece) >> kShift];
      slot.key_size = static_cast<uint8_t>(piece.size());
      slot.count = static_cast<uint8_t>(count);
      std::memcpy(slot.key, piece.data(), piece.size());
      if (count > 0) std::memcpy(slot.ids, ids, count * sizeof(int32_t));
    }

   private:
    static constexpr int kShift = 64 - __builtin_ctzll(Slots);
    std::vector<S> slots_ = std::vector<S>(Slots);
  };

  Table<ShortSlot, size_t{1} << 17> short_;
  Table<LongSlot, size_t{1} << 15> long_;
};

}  // namespace milepost::text
