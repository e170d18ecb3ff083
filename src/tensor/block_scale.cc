#include "milepost/tensor/block_scale.h"

#include <algorithm>
#include <cassert>

#include "tensor/block_scale_kernels.h"
#include "tensor/float_formats.h"

namespace milepost {
namespace {

constexpr float kLargestE4M3FN = 448;

// Calls run(block index, elements before this stretch, elements of it) for each block that the columns touch.
template <typename Run>
void for_each_block(int64_t block, int64_t first_column, int64_t count, Run run) {
  assert(block > 0 && first_column >= 0);
  int64_t index = first_column / block;
  int64_t rest_of_block = block - first_column % block;
  for (int64_t done = 0; done < count; ++index, rest_of_block = block) {
    const int64_t part = std::min(rest_of_block, count - done);
    run(index, done, part);
    done += part;
  }
}

}  // namespace

void dequantise_row(std::byte* dst, DType to, const std::byte* codes, DType from, const float* scales,
                    int64_t block, int64_t first_column, int64_t count) {
  const DequantiseRun dequantise = dequantise_run(from, to);
  assert(dequantise != nullptr);
  const int64_t size = dtype_size(to);
  for_each_block(block, first_column, count, [=](int64_t index, int64_t done, int64_t part) {
    dequantise(dst + done * size, codes + done, scales[index], part);
  });
}

void accumulate_amax(float* amax, const std::byte* src, DType from, int64_t block, int64_t first_column,
                     int64_t count) {
  const AmaxRun largest_of = amax_run(from);
  assert(largest_of != nullptr);
  const int64_t size = dtype_size(from);
  for_each_block(block, first_column, count, [=](int64_t index, int64_t done, int64_t part) {
    const float largest = largest_of(src + done * size, part);
    float& best = amax[index];
    if (best == best && !(largest <= best)) best = largest;
  });
}

float fp8_scale(float amax) {
  const float scale = amax / kLargestE4M3FN;
  return scale == 0 ? 1 : scale;
}

void quantise_row(std::byte* codes, const std::byte* src, DType from, const float* scales, int64_t block,
                  int64_t first_column, int64_t count) {
  const QuantiseRun quantise = quantise_run(from);
  assert(quantise != nullptr);
  const int64_t size = dtype_size(from);
  for_each_block(block, first_column, count, [=](int64_t index, int64_t done, int64_t part) {
    quantise(codes + done, src + done * size, scales[index], part);
  });
}

void dequantise_mxfp4_row(std::byte* dst, DType to, const std::uint8_t* packed, const std::uint8_t* scales,
                          int64_t block, int64_t first_column, int64_t count) {
  const DequantiseRun dequantise = dequantise_mxfp4_run(to);
  assert(dequantise != nullptr);
  const int64_t size = dtype_size(to);
  for_each_block(block, first_column, count, [=](int64_t index, int64_t done, int64_t part) {
    const float scale = decode_e8m0(scales[index]);
    const int64_t column = first_column + done;
    std::byte* at = dst + done * size;
    const std::byte* codes = reinterpret_cast<const std::byte*>(packed) + column / 2;
    if (column % 2 != 0) {  // a run begins with a low nibble
      const std::byte high = *codes++ >> 4;
      dequantise(at, &high, scale, 1);
      at += size;
      --part;
    }
    dequantise(at, codes, scale, part);
  });
}

}  // namespace milepost
