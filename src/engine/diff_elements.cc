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

void note_distance(ElementDifferences* found, double a, double b) {
  const double distance = std::abs(a - b);
  if (std::isnan(distance)) return;
  found->max_abs = std::max(found->max_abs, distance);
  const double relative = distance / std::abs(b);
  if (!std::isnan(relative)) found->max_rel = std::max(found->max_rel, relative);
}

bool within(double a, double b, const Tolerance& tolerance) {
  if (a == b) return true;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= tolerance.atol + tolerance.rtol * std::abs(b);
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
      for (int64_t part = i * parts; measured && part < (i + 1) * parts; ++part) {
        note_distance(&found, values_a[part], values_b[part]);
      }
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
      bool equal = true;
      for (int64_t part = i * parts; part < (i + 1) * parts; ++part) {
        equal = equal && within(values_a[part], values_b[part], tolerance);
      }
      if (equal) continue;
      note_first(&found, begin + i, a + (begin + i) * size_a, size_a, b + (begin + i) * size_b, size_b);
      for (int64_t part = i * parts; part < (i + 1) * parts; ++part) {
        note_distance(&found, values_a[part], values_b[part]);
      }
    }
  }
  return found;
}

}  // namespace milepost
