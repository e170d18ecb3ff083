// What both passes of attention_blocks.h share: sizes of tiles, and rows copied out of heads.
#pragma once

#include <cstdint>
#include <cstring>

#include "train/ops/kernels/attention_blocks.h"

namespace milepost::train {

constexpr int64_t kGroupRows = 8;  // the rows of a tile of gemm_block
constexpr float kLog2E = 1.44269504F;

inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct BatchHead {
  int64_t batch, head;
};

// Asks for a row some rows before it is needed: heads lie a page apart, where no processor looks ahead.
constexpr int64_t kRowsAhead = 8;
inline void fetch_row(const void* row, int64_t size_bytes) {
  for (int64_t at = 0; at < size_bytes; at += 64) __builtin_prefetch(static_cast<const char*>(row) + at);
}

// `count` rows of `width` features into a tile, from its column `column` on.
template <class T>
void copy_rows(const HeadRows<const T>& rows, BatchHead from, int64_t first, int64_t count, int64_t width,
               T* tile, int64_t tile_width, int64_t column) {
  if (width == 0) return;
  const auto size_bytes = static_cast<int64_t>(sizeof(T)) * width;
  for (int64_t i = 0; i < count; ++i) {
    const T* row = rows.at(from.batch, first + i, from.head);
    if (i + kRowsAhead < count) fetch_row(row + kRowsAhead * rows.row_stride, size_bytes);
    std::memcpy(tile + i * tile_width + column, row, static_cast<size_t>(size_bytes));
  }
}

// Zeros in the tile's columns past `width`: an odd number of bfloat16 leaves half a unit.
template <class T>
void pad_rows(T* tile, int64_t count, int64_t tile_width, int64_t width) {
  for (int64_t i = 0; width < tile_width && i < count; ++i) {
    std::memset(tile + i * tile_width + width, 0, static_cast<size_t>(tile_width - width) * sizeof(T));
  }
}

}  // namespace milepost::train
