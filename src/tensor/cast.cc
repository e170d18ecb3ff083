// Every cast goes through float32, as torch's do: float64 to bfloat16 rounds twice, there as here. Only
// float32 to and from float64 is direct.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "milepost/tensor/copy.h"
#include "tensor/cast_kernels.h"

namespace milepost {
namespace {

constexpr int64_t kBlock = 2048;  // elements between two conversions: 8 KiB of float32

template <typename To, typename From>
void convert_native(std::byte* dst, const std::byte* src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, src + i * static_cast<int64_t>(sizeof(From)), sizeof in);
    const To out = static_cast<To>(in);
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(To)), &out, sizeof out);
  }
}

ConvertRun to_float32(DType from) {
  return from == DType::kFloat64 ? convert_native<float, double> : cast_kernels(from).to_float32;
}

ConvertRun from_float32(DType to) {
  return to == DType::kFloat64 ? convert_native<double, float> : cast_kernels(to).from_float32;
}

// What a type's values are made of: `digits` significant bits, the power of two of the smallest positive one,
// the largest finite one, and what else there is.
struct ValueSet {
  int digits;
  int lowest_power;
  double largest;
  bool negative, infinity, nan;
};

ValueSet value_set(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return {53, -1074, std::numeric_limits<double>::max(), true, true, true};
    case DType::kFloat32:
    case DType::kComplex64:
      return {24, -149, std::numeric_limits<float>::max(), true, true, true};
    case DType::kFloat16:
    case DType::kComplex32:
      return {11, -24, 65504, true, true, true};
    case DType::kBFloat16:
      return {8, -133, 0x1.fep127, true, true, true};
    case DType::kFloat8E4M3FN:
      return {4, -9, 448, true, false, true};
    case DType::kFloat8E5M2:
      return {3, -16, 57344, true, true, true};
    case DType::kFloat8E4M3FNUZ:
      return {4, -10, 240, true, false, true};
    case DType::kFloat8E5M2FNUZ:
      return {3, -17, 57344, true, false, true};
    case DType::kFloat8E8M0FNU:
      return {1, -127, 0x1p127, false, false, true};
    case DType::kBool:
      return {1, 0, 1, false, false, false};
    default:
      break;
  }
  const DTypeInfo& info = dtype_info(dtype);
  const bool is_signed = info.kind == DTypeKind::kInt;
  const int digits = info.bits - (is_signed ? 1 : 0);
  return {digits, 0, std::ldexp(1.0, digits), is_signed, false, false};
}

}  // namespace

bool cast_is_lossless(DType from, DType to) {
  if (from == to) return true;
  const DTypeKind from_kind = dtype_info(from).kind, to_kind = dtype_info(to).kind;
  if (from_kind == DTypeKind::kPacked || to_kind == DTypeKind::kPacked) return false;
  if (from_kind == DTypeKind::kComplex && to_kind != DTypeKind::kComplex) return false;
  if (to == DType::kFloat8E8M0FNU) return false;  // it has no zero
  const ValueSet a = value_set(from), b = value_set(to);
  return a.digits <= b.digits && a.lowest_power >= b.lowest_power && a.largest <= b.largest &&
         (!a.negative || b.negative) && (!a.infinity || b.infinity) && (!a.nan || b.nan);
}

bool cast_is_supported(DType from, DType to) {
  return from == to ||
         (dtype_info(from).kind == DTypeKind::kFloat && dtype_info(to).kind == DTypeKind::kFloat);
}

void cast(std::byte* dst, DType to, const std::byte* src, DType from, int64_t count) {
  assert(cast_is_supported(from, to));
  if (from == to) {
    const std::optional<int64_t> bytes = dtype_bytes(from, count);
    assert(bytes);
    if (*bytes > 0) std::memcpy(dst, src, static_cast<size_t>(*bytes));
    return;
  }
  if (from == DType::kFloat32) return from_float32(to)(dst, src, count);
  if (to == DType::kFloat32) return to_float32(from)(dst, src, count);

  const ConvertRun widen = to_float32(from), narrow = from_float32(to);
  std::array<float, kBlock> values;
  auto* const between = reinterpret_cast<std::byte*>(values.data());
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t part = std::min(kBlock, count - i);
    widen(between, src + i * dtype_size(from), part);
    narrow(dst + i * dtype_size(to), between, part);
  }
}

}  // namespace milepost
