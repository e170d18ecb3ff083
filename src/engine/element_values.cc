#include "engine/element_values.h"

#include <fmt/format.h>

#include <cstring>

#include "milepost/engine/scan.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void integers_as_doubles(const std::byte* elements, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<double>(load<T>(elements + i * static_cast<int64_t>(sizeof(T))));
  }
}

DType component_dtype(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return DType::kFloat16;
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

// Shortest text that names the value among those of its dtype, as far as fmt knows the type.
std::string float_text(const std::byte* element, DType dtype) {
  const double value = element_as_double(element, dtype);
  return dtype == DType::kFloat64 ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
}

}  // namespace

bool has_element_values(DType dtype) { return dtype_info(dtype).kind != DTypeKind::kPacked; }

void elements_as_doubles(const std::byte* elements, DType dtype, int64_t count, double* out) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return integers_as_doubles<uint8_t>(elements, count, out);
    case DType::kInt8:
      return integers_as_doubles<int8_t>(elements, count, out);
    case DType::kInt16:
      return integers_as_doubles<int16_t>(elements, count, out);
    case DType::kUInt16:
      return integers_as_doubles<uint16_t>(elements, count, out);
    case DType::kInt32:
      return integers_as_doubles<int32_t>(elements, count, out);
    case DType::kUInt32:
      return integers_as_doubles<uint32_t>(elements, count, out);
    case DType::kInt64:
      return integers_as_doubles<int64_t>(elements, count, out);
    case DType::kUInt64:
      return integers_as_doubles<uint64_t>(elements, count, out);
    default:
      return cast(reinterpret_cast<std::byte*>(out), DType::kFloat64, elements, component_dtype(dtype),
                  count * num_components(dtype));
  }
}

std::string element_text(const std::byte* element, DType dtype) {
  switch (dtype_info(dtype).kind) {
    case DTypeKind::kBool:
      return load<uint8_t>(element) != 0 ? "true" : "false";
    case DTypeKind::kInt:
      return dtype == DType::kInt64
                 ? fmt::format("{}", load<int64_t>(element))
                 : fmt::format("{}", static_cast<int64_t>(element_as_double(element, dtype)));
    case DTypeKind::kUInt:
      return dtype == DType::kUInt64
                 ? fmt::format("{}", load<uint64_t>(element))
                 : fmt::format("{}", static_cast<uint64_t>(element_as_double(element, dtype)));
    case DTypeKind::kFloat:
      return float_text(element, dtype);
    case DTypeKind::kComplex: {
      const DType half = component_dtype(dtype);
      return fmt::format("({}, {})", float_text(element, half), float_text(element + dtype_size(half), half));
    }
    case DTypeKind::kPacked:
      break;
  }
  return fmt::format("0x{:02x}", load<uint8_t>(element));
}

}  // namespace milepost
