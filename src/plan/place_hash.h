// Hash of where a chunk starts: a name's index and offsets.
#pragma once

#include <cstdint>

#include "milepost/tensor/box.h"

namespace milepost {

inline uint64_t place_hash(int32_t name, DimsView offsets) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: spreads small numbers over all bits
  uint64_t hash = (static_cast<uint64_t>(name) + 1) * kOdd;
  for (int64_t offset : offsets) {
    hash = (hash ^ (hash >> 29) ^ static_cast<uint64_t>(offset)) * kOdd;
  }
  return hash;
}

}  // namespace milepost
