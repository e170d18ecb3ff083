// In-place changes that a stored tensor may ask for: torch keeps negation and conjugation as bits of a view
// and leaves the bytes alone, and a big-endian machine writes its own byte order.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

template <typename T, typename Change>
void change_each(MutableBytes data, size_t first, size_t step, Change change) {
  for (size_t at = first; data.size() >= sizeof(T) && at <= data.size() - sizeof(T); at += step) {
    T value;
    std::memcpy(&value, data.data() + at, sizeof value);
    value = change(value);
    std::memcpy(data.data() + at, &value, sizeof value);
  }
}

// Bytes of a number: of one half, for complex types.
size_t number_bytes(DType dtype) {
  const auto size = static_cast<size_t>(dtype_size(dtype));
  return dtype_info(dtype).kind == DTypeKind::kComplex ? size / 2 : size;
}

// Flips the sign of the floats of `size` bytes that lie at `first`, `first + step`, ...
void flip_signs(MutableBytes data, size_t size, size_t first, size_t step) {
  for (size_t at = first + size - 1; at < data.size(); at += step) data[at] ^= std::byte{0x80};
}

template <typename T>
T negate(T value) {
  return static_cast<T>(T{0} - value);
}

void negate_integers(MutableBytes data, size_t size) {
  switch (size) {
    case 1:
      return change_each<uint8_t>(data, 0, 1, negate<uint8_t>);
    case 2:
      return change_each<uint16_t>(data, 0, 2, negate<uint16_t>);
    case 4:
      return change_each<uint32_t>(data, 0, 4, negate<uint32_t>);
    default:
      return change_each<uint64_t>(data, 0, 8, negate<uint64_t>);
  }
}

}  // namespace

void swap_bytes(MutableBytes data, DType dtype) {
  if (is_sub_byte(dtype)) return;
  const size_t size = number_bytes(dtype);
  for (size_t at = 0; data.size() - at >= size && size > 1; at += size) {
    std::reverse(data.data() + at, data.data() + at + size);
  }
}

void apply_neg(MutableBytes data, DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      // The code of negative zero is NaN, and zero has no other sign.
      return change_each<uint8_t>(data, 0, 1, [](uint8_t code) {
        return static_cast<uint8_t>((code & 0x7f) == 0 ? code : code ^ 0x80);
      });
    case DType::kFloat8E8M0FNU:
    case DType::kBool:
      return;  // these have no negative values
    default:
      break;
  }
  switch (dtype_info(dtype).kind) {
    case DTypeKind::kFloat:
    case DTypeKind::kComplex:
      return flip_signs(data, number_bytes(dtype), 0, number_bytes(dtype));
    case DTypeKind::kInt:
    case DTypeKind::kUInt:
      return negate_integers(data, number_bytes(dtype));
    default:
      return;
  }
}

void apply_conj(MutableBytes data, DType dtype) {
  if (dtype_info(dtype).kind != DTypeKind::kComplex) return;
  flip_signs(data, number_bytes(dtype), number_bytes(dtype), 2 * number_bytes(dtype));
}

}  // namespace milepost
