// Arithmetic on numbers that come from a file. Each function returns false instead of wrapping; nothing here
// throws.
#pragma once

#include <cstdint>
#include <span>

namespace milepost {

[[nodiscard]] inline bool checked_add(int64_t a, int64_t b, int64_t* sum) {
  return !__builtin_add_overflow(a, b, sum);
}
[[nodiscard]] inline bool checked_mul(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

// Product of `values`, 1 for none; false on overflow or a negative value. A zero anywhere gives 0 even when
// the others would overflow.
[[nodiscard]] inline bool checked_product(std::span<const int64_t> values, int64_t* product) {
  bool zero = false;
  for (int64_t v : values) {
    if (v < 0) return false;
    zero |= v == 0;
  }
  *product = zero ? 0 : 1;
  if (zero) return true;
  for (int64_t v : values) {
    if (!checked_mul(*product, v, product)) return false;
  }
  return true;
}

// Whether [offset, offset + length) lies inside [0, limit), for non-negative limit; never adds first.
[[nodiscard]] inline bool range_fits(int64_t offset, int64_t length, int64_t limit) {
  return offset >= 0 && length >= 0 && offset <= limit && limit - offset >= length;
}

inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline int64_t round_down(int64_t value, int64_t multiple) { return value / multiple * multiple; }
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace milepost
