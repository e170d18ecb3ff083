#include "tensor/block_scale_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kPart = 256;  // elements that are float32 at a time: 1 KiB of the stack

using Part = std::array<float, kPart>;

std::byte* bytes_of(Part& part) { return reinterpret_cast<std::byte*>(part.data()); }

template <DType kFrom, DType kTo>
void dequantise(std::byte* dst, const std::byte* codes, float scale, int64_t count) {
  Part values;
  for (int64_t done = 0; done < count; done += kPart) {
    const int64_t part = std::min(kPart, count - done);
    cast(bytes_of(values), DType::kFloat32, codes + done, kFrom, part);
    for (int64_t i = 0; i < part; ++i) values[i] = with_one_nan(values[i] * scale);
    cast(dst + done * dtype_size(kTo), kTo, bytes_of(values), DType::kFloat32, part);
  }
}

constexpr std::array<float, 16> kE2M1Values = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// A table of what the 16 codes become: runs are as short as 32 elements, but that is more.
template <DType kTo, typename Element>
void dequantise_mxfp4(std::byte* dst, const std::byte* packed, float scale, int64_t count) {
  std::array<float, 16> values = kE2M1Values;
  for (float& value : values) value = with_one_nan(value * scale);
  std::array<Element, 16> table;
  cast(reinterpret_cast<std::byte*>(table.data()), kTo, reinterpret_cast<const std::byte*>(values.data()),
       DType::kFloat32, 16);
  for (int64_t i = 0; i < count; ++i) {
    const auto nibble = std::to_integer<size_t>(packed[i / 2] >> (i % 2 * 4)) & 15;
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(Element)), &table[nibble], sizeof(Element));
  }
}

template <DType kFrom>
void quantise(std::byte* codes, const std::byte* src, float scale, int64_t count) {
  Part values;
  for (int64_t done = 0; done < count; done += kPart) {
    const int64_t part = std::min(kPart, count - done);
    cast(bytes_of(values), DType::kFloat32, src + done * dtype_size(kFrom), kFrom, part);
    for (int64_t i = 0; i < part; ++i) values[i] = with_one_nan(values[i] / scale);
    cast(codes + done, DType::kFloat8E4M3FN, bytes_of(values), DType::kFloat32, part);
  }
}

template <DType kDType, typename Code>
float value_of(Code code) {
  float value;
  cast(reinterpret_cast<std::byte*>(&value), DType::kFloat32, reinterpret_cast<const std::byte*>(&code),
       kDType, 1);
  return value;
}

// Without their signs, codes are ordered as their values are, with the NaNs on top.
template <DType kFrom, typename Code>
float amax(const std::byte* src, int64_t count) {
  Code largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, src + i * static_cast<int64_t>(sizeof code), sizeof code);
    largest = std::max(largest, static_cast<Code>(code & std::numeric_limits<Code>::max()));
  }
  return with_one_nan(value_of<kFrom>(largest));
}

template <DType kTo>
DequantiseRun portable_dequantise(DType from) {
  switch (from) {
    case DType::kFloat8E4M3FN:
      return dequantise<DType::kFloat8E4M3FN, kTo>;
    case DType::kFloat8E5M2:
      return dequantise<DType::kFloat8E5M2, kTo>;
    case DType::kFloat8E4M3FNUZ:
      return dequantise<DType::kFloat8E4M3FNUZ, kTo>;
    case DType::kFloat8E5M2FNUZ:
      return dequantise<DType::kFloat8E5M2FNUZ, kTo>;
    default:
      return nullptr;
  }
}

}  // namespace

DequantiseRun dequantise_run(DType from, DType to, CpuLevel level) {
  if (level == CpuLevel::kAvx512) {
    if (const DequantiseRun run = avx512_dequantise(from, to)) return run;
  }
  switch (to) {
    case DType::kFloat32:
      return portable_dequantise<DType::kFloat32>(from);
    case DType::kBFloat16:
      return portable_dequantise<DType::kBFloat16>(from);
    case DType::kFloat16:
      return portable_dequantise<DType::kFloat16>(from);
    default:
      return nullptr;
  }
}

DequantiseRun dequantise_mxfp4_run(DType to, CpuLevel level) {
  if (level == CpuLevel::kAvx512) {
    if (const DequantiseRun run = avx512_dequantise_mxfp4(to)) return run;
  }
  switch (to) {
    case DType::kFloat32:
      return dequantise_mxfp4<DType::kFloat32, uint32_t>;
    case DType::kBFloat16:
      return dequantise_mxfp4<DType::kBFloat16, uint16_t>;
    case DType::kFloat16:
      return dequantise_mxfp4<DType::kFloat16, uint16_t>;
    default:
      return nullptr;
  }
}

QuantiseRun quantise_run(DType from, CpuLevel level) {
  if (level == CpuLevel::kAvx512) {
    if (const QuantiseRun run = avx512_quantise(from)) return run;
  }
  switch (from) {
    case DType::kFloat64:
      return quantise<DType::kFloat64>;
    case DType::kFloat32:
      return quantise<DType::kFloat32>;
    case DType::kBFloat16:
      return quantise<DType::kBFloat16>;
    case DType::kFloat16:
      return quantise<DType::kFloat16>;
    default:
      return nullptr;
  }
}

AmaxRun amax_run(DType from, CpuLevel level) {
  if (level == CpuLevel::kAvx512) {
    if (const AmaxRun run = avx512_amax(from)) return run;
  }
  switch (from) {
    case DType::kFloat64:
      return amax<DType::kFloat64, int64_t>;
    case DType::kFloat32:
      return amax<DType::kFloat32, int32_t>;
    case DType::kBFloat16:
      return amax<DType::kBFloat16, int16_t>;
    case DType::kFloat16:
      return amax<DType::kFloat16, int16_t>;
    default:
      return nullptr;
  }
}

}  // namespace milepost
