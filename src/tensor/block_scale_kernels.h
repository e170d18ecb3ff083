// Runs of elements that share one scale: what the functions of block_scale.h do within a block.
//
// Any NaN that comes out is the positive quiet one without payload: which one a product has depends on the
// processor and the order of its operands. So results do not depend on the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "milepost/tensor/dtype.h"
#include "tensor/cast_kernels.h"

namespace milepost {

// `count` may be 0; no pointer need be aligned.
using DequantiseRun = void (*)(std::byte* dst, const std::byte* codes, float scale, int64_t count);
using QuantiseRun = void (*)(std::byte* codes, const std::byte* src, float scale, int64_t count);
using AmaxRun = float (*)(const std::byte* src, int64_t count);

// Null for types that block_scale.h does not take. Requires: a level that this processor has.
DequantiseRun dequantise_run(DType from, DType to, CpuLevel level = cpu_level());
DequantiseRun dequantise_mxfp4_run(DType to, CpuLevel level = cpu_level());  // from a low nibble on
QuantiseRun quantise_run(DType from, CpuLevel level = cpu_level());
AmaxRun amax_run(DType from, CpuLevel level = cpu_level());

// Those of the AVX-512 level that differ from the portable ones; null for the others.
DequantiseRun avx512_dequantise(DType from, DType to);
DequantiseRun avx512_dequantise_mxfp4(DType to);
QuantiseRun avx512_quantise(DType from);
AmaxRun avx512_amax(DType from);

[[gnu::always_inline]] inline float with_one_nan(float value) {
  return value != value ? std::numeric_limits<float>::quiet_NaN() : value;
}

}  // namespace milepost
