#include "milepost/tensor/block_scale.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <limits>

#include "milepost/tensor/copy.h"
#include "tensor/float_formats.h"

namespace milepost {
namespace {

constexpr int64_t kPart = 256;  // elements that are float32 at a time: 1 KiB of the stack
constexpr float kLargestE4M3FN = 448;

using Part = std::array<float, kPart>;

std::byte* bytes_of(Part& part) { return reinterpret_cast<std::byte*>(part.data()); }

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

// Which NaN an operation gives depends on the processor and the order of the operands: all become this one.
float with_one_nan(float value) { return value != value ? std::numeric_limits<float>::quiet_NaN() : value; }

void dequantise_part(std::byte* dst, DType to, const std::byte* codes, DType from, float scale,
                     int64_t count) {
  Part values;
  for (int64_t done = 0; done < count; done += kPart) {
    const int64_t part = std::min(kPart, count - done);
    cast(bytes_of(values), DType::kFloat32, codes + done, from, part);
    for (int64_t i = 0; i < part; ++i) values[i] = with_one_nan(values[i] * scale);
    cast(dst + done * dtype_size(to), to, bytes_of(values), DType::kFloat32, part);
  }
}

void quantise_part(std::byte* codes, const std::byte* src, DType from, float scale, int64_t count) {
  Part values;
  for (int64_t done = 0; done < count; done += kPart) {
    const int64_t part = std::min(kPart, count - done);
    cast(bytes_of(values), DType::kFloat32, src + done * dtype_size(from), from, part);
    for (int64_t i = 0; i < part; ++i) values[i] = with_one_nan(values[i] / scale);
    cast(codes + done, DType::kFloat8E4M3FN, bytes_of(values), DType::kFloat32, part);
  }
}

// Without their sign, the codes of these types are ordered as their values are, with the NaNs on top.
template <typename Code>
Code largest_code(const std::byte* src, int64_t count) {
  constexpr Code kMagnitude = std::numeric_limits<Code>::max();
  Code largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, src + i * static_cast<int64_t>(sizeof code), sizeof code);
    largest = std::max(largest, static_cast<Code>(code & kMagnitude));
  }
  return largest;
}

template <typename Code>
float amax_of_codes(const std::byte* src, DType from, int64_t count) {
  const Code largest = largest_code<Code>(src, count);
  float value;
  cast(reinterpret_cast<std::byte*>(&value), DType::kFloat32, reinterpret_cast<const std::byte*>(&largest),
       from, 1);
  return value;
}

float amax_of_part(const std::byte* src, DType from, int64_t count) {
  switch (from) {
    case DType::kFloat64:
      return amax_of_codes<int64_t>(src, from, count);
    case DType::kFloat32:
      return amax_of_codes<int32_t>(src, from, count);
    default:
      assert(from == DType::kBFloat16 || from == DType::kFloat16);
      return amax_of_codes<int16_t>(src, from, count);
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

[[maybe_unused]] bool is_result(DType to) {
  return to == DType::kFloat32 || to == DType::kBFloat16 || to == DType::kFloat16;
}

}  // namespace

void dequantise_row(std::byte* dst, DType to, const std::byte* codes, DType from, const float* scales,
                    int64_t block, int64_t first_column, int64_t count) {
  assert(is_result(to) && dtype_size(from) == 1);
  for_each_block(block, first_column, count, [&](int64_t index, int64_t done, int64_t part) {
    dequantise_part(dst + done * dtype_size(to), to, codes + done, from, scales[index], part);
  });
}

void accumulate_amax(float* amax, const std::byte* src, DType from, int64_t block, int64_t first_column,
                     int64_t count) {
  for_each_block(block, first_column, count, [&](int64_t index, int64_t done, int64_t part) {
    const float largest = with_one_nan(amax_of_part(src + done * dtype_size(from), from, part));
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
  for_each_block(block, first_column, count, [&](int64_t index, int64_t done, int64_t part) {
    quantise_part(codes + done, src + done * dtype_size(from), from, scales[index], part);
  });
}

void dequantise_mxfp4_row(std::byte* dst, DType to, const std::uint8_t* packed, const std::uint8_t* scales,
                          int64_t block, int64_t first_column, int64_t count) {
  assert(is_result(to));
  if (to == DType::kFloat32) {
    dequantise_mxfp4<std::uint32_t>(dst, to, packed, scales, block, first_column, count);
  } else {
    dequantise_mxfp4<std::uint16_t>(dst, to, packed, scales, block, first_column, count);
  }
}

}  // namespace milepost
