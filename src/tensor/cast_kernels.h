// Conversion of runs of elements from and to float32, which every cast goes through.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/tensor/dtype.h"

namespace milepost {

// Converts `count` elements; neither pointer need be aligned. Results, NaN payloads included, do not depend
// on the processor.
using ConvertRun = void (*)(std::byte* dst, const std::byte* src, int64_t count);

// For the real float types but float64, which goes first through a conversion of its own. Null for others.
struct CastKernels {
  ConvertRun to_float32;
  ConvertRun from_float32;
};

// What vector instructions the kernels may use; each level includes those before it.
enum class CpuLevel { kPortable, kAvx2, kAvx512 };
CpuLevel cpu_level();  // of this processor

// Requires: a level that this processor has. Tests compare the levels.
CastKernels cast_kernels(DType dtype, CpuLevel level = cpu_level());

}  // namespace milepost
