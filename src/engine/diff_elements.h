// Comparing runs of elements in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "milepost/tensor/dtype.h"

namespace milepost {

struct Tolerance {
  double rtol = 0, atol = 0;
};

// What differs in a run of elements.
struct ElementDifferences {
  int64_t count = 0;                   // elements; 0: nothing differs and the rest means nothing
  int64_t first = 0;                   // index of the first, from the start of the run
  std::array<std::byte, 16> a{}, b{};  // the first's bytes on each side
  double max_abs = 0, max_rel = 0;
};

// Bit by bit. Requires: types of whole bytes; for the 6-bit ones give kUInt8 and bytes.
ElementDifferences compare_bits(const std::byte* a, const std::byte* b, DType dtype, int64_t count);

// As DiffOptions::rtol says. Requires has_element_values of both, and both complex or neither.
ElementDifferences compare_within(const std::byte* a, DType dtype_a, const std::byte* b, DType dtype_b,
                                  int64_t count, const Tolerance& tolerance);

}  // namespace milepost
