#include "milepost/tensor/block_scale.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "milepost/tensor/copy.h"
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

constexpr std::array<float, 16> kE2M1Values = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

template <typename Element>
void look_up_nibbles(std::byte* dst, const std::array<Element, 16>& table, const std::uint8_t* packed,
                     int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = first + i;
    const int nibble = packed[element / 2] >> (element % 2 * 4) & 15;
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(Element)), &table[static_cast<size_t>(nibble)],
                sizeof(Element));
  }
}

// Blocks are short (32 elements), but even so longer than the table of what the 16 codes become.
template <typename Element>
void dequantise_mxfp4(std::byte* dst, DType to, const std::uint8_t* packed, const std::uint8_t* scales,
                      int64_t block, int64_t first_column, int64_t count) {
  for_each_block(block, first_column, count, [&](int64_t index, int64_t done, int64_t part) {
    const float scale = decode_e8m0(scales[index]);
    std::array<float, 16> values = kE2M1Values;
    for (float& value : values) value = with_one_nan(value * scale);
    std::array<Element, 16> table;
    cast(reinterpret_cast<std::byte*>(table.data()), to, reinterpret_cast<const std::byte*>(values.data()),
         DType::kFloat32, 16);
    look_up_nibbles(dst + done * dtype_size(to), table, packed, first_column + done, part);
  });
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
  assert(to == DType::kFloat32 || to == DType::kBFloat16 || to == DType::kFloat16);
  if (to == DType::kFloat32) {
    dequantise_mxfp4<std::uint32_t>(dst, to, packed, scales, block, first_column, count);
  } else {
    dequantise_mxfp4<std::uint16_t>(dst, to, packed, scales, block, first_column, count);
  }
}

}  // namespace milepost
