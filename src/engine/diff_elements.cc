#include "engine/diff_elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/element_values.h"

namespace milepost {
namespace {

void note_first(ElementDifferences* found, int64_t index, const std::byte* a, int64_t size_a,
                const std::byte* b, int64_t size_b) {
  if (found->count++ > 0) return;
  found->first = index;
  std::memcpy(found->a.data(), a, static_cast<size_t>(size_a));
  std::memcpy(found->b.data(), b, static_cast<size_t>(size_b));
}

// `parts`: 1, or 2 for complex numbers.
void note_distance(ElementDifferences* found, const double* a, const double* b, int64_t parts) {
  const double distance = parts == 1 ? std::abs(a[0] - b[0]) : std::hypot(a[0] - b[0], a[1] - b[1]);
  if (std::isnan(distance)) return;
  found->max_abs = std::max(found->max_abs, distance);
  const double relative = distance / (parts == 1 ? std::abs(b[0]) : std::hypot(b[0], b[1]));
  if (!std::isnan(relative)) found->max_rel = std::max(found->max_rel, relative);
}

bool within(double a, double b, const Tolerance& tolerance) {
  if (a == b) return true;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= tolerance.atol + tolerance.rtol * std::abs(b);
}

// Of two complex numbers, each real part first: by their distance in the plane. A number with a NaN in either
// part is a NaN.
bool complex_within(const double* a, const double* b, const Tolerance& tolerance) {
  if (a[0] == b[0] && a[1] == b[1]) return true;
  const bool nan_a = std::isnan(a[0]) || std::isnan(a[1]), nan_b = std::isnan(b[0]) || std::isnan(b[1]);
  if (nan_a || nan_b) return nan_a && nan_b;
  if (std::isinf(a[0]) || std::isinf(a[1]) || std::isinf(b[0]) || std::isinf(b[1])) return false;
  return std::hypot(a[0] - b[0], a[1] - b[1]) <= tolerance.atol + tolerance.rtol * std::hypot(b[0], b[1]);
}

}  // namespace

ElementDifferences compare_bits(const std::byte* a, const std::byte* b, DType dtype, int64_t count) {
  const int64_t size = dtype_size(dtype), parts = num_components(dtype);
  ElementDifferences found;
  if (std::memcmp(a, b, static_cast<size_t>(count * size)) == 0) return found;
  double values_a[kBlockElements * 2], values_b[kBlockElements * 2];
  for (int64_t begin = 0; begin < count; begin += kBlockElements) {
    const int64_t n = std::min(kBlockElements, count - begin);
    const std::byte *block_a = a + begin * size, *block_b = b + begin * size;
    if (std::memcmp(block_a, block_b, static_cast<size_t>(n * size)) == 0) continue;
    const bool measured = has_element_values(dtype);
    if (measured) {
      elements_as_doubles(block_a, dtype, n, values_a);
      elements_as_doubles(block_b, dtype, n, values_b);
    }
    for (int64_t i = 0; i < n; ++i) {
      const std::byte *one = block_a + i * size, *other = block_b + i * size;
      if (std::memcmp(one, other, static_cast<size_t>(size)) == 0) continue;
      note_first(&found, begin + i, one, size, other, size);
      if (measured) note_distance(&found, values_a + i * parts, values_b + i * parts, parts);
    }
  }
  return found;
}

ElementDifferences compare_within(const std::byte* a, DType dtype_a, const std::byte* b, DType dtype_b,
                                  int64_t count, const Tolerance& tolerance) {
  const int64_t size_a = dtype_size(dtype_a), size_b = dtype_size(dtype_b), parts = num_components(dtype_a);
  ElementDifferences found;
  if (dtype_a == dtype_b && std::memcmp(a, b, static_cast<size_t>(count * size_a)) == 0) return found;
  double values_a[kBlockElements * 2], values_b[kBlockElements * 2];
  for (int64_t begin = 0; begin < count; begin += kBlockElements) {
    const int64_t n = std::min(kBlockElements, count - begin);
    elements_as_doubles(a + begin * size_a, dtype_a, n, values_a);
    elements_as_doubles(b + begin * size_b, dtype_b, n, values_b);
    for (int64_t i = 0; i < n; ++i) {
      const double *one = values_a + i * parts, *other = values_b + i * parts;
      if (parts == 1 ? within(*one, *other, tolerance) : complex_within(one, other, tolerance)) continue;
      note_first(&found, begin + i, a + (begin + i) * size_a, size_a, b + (begin + i) * size_b, size_b);
      note_distance(&found, one, other, parts);
    }
  }
  return found;
}

}  // namespace milepost
