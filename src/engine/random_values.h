// Pseudo-random tensor elements that depend on seed and index only, so that any stretch can be made on its
// own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/tensor/dtype.h"

namespace milepost {

// Elements [first, first + count): uniform in [-0.035, 0.035), that is of standard deviation 0.02, as models
// are initialised. `dtype`: any float of 2 bytes or more. Cost: about 1 G elements/s.
void random_values(std::byte* dst, DType dtype, uint64_t seed, int64_t first, int64_t count);

}  // namespace milepost
