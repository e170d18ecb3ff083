#include <bit>
#include <cstring>

#include "milepost/tensor/copy.h"
#include "tensor/float_formats.h"

namespace milepost {
namespace {

template <typename T>
T load(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

template <typename T>
double number(const std::byte* element) {
  return static_cast<double>(load<T>(element));
}

}  // namespace

double element_as_double(const std::byte* element, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return number<float>(element);
    case DType::kFloat64:
    case DType::kComplex128:
      return load<double>(element);
    case DType::kFloat16:
    case DType::kComplex32:
      return static_cast<double>(decode_float<kFormatF16>(load<uint16_t>(element)));
    case DType::kBFloat16:
      return static_cast<double>(decode_bfloat16(load<uint16_t>(element)));
    case DType::kFloat8E4M3FN:
      return static_cast<double>(decode_float<kFormatE4M3FN>(load<uint8_t>(element)));
    case DType::kFloat8E5M2:
      return static_cast<double>(decode_float<kFormatE5M2>(load<uint8_t>(element)));
    case DType::kFloat8E4M3FNUZ:
      return static_cast<double>(decode_float<kFormatE4M3FNUZ>(load<uint8_t>(element)));
    case DType::kFloat8E5M2FNUZ:
      return static_cast<double>(decode_float<kFormatE5M2FNUZ>(load<uint8_t>(element)));
    case DType::kFloat8E8M0FNU:
      return static_cast<double>(decode_e8m0(load<uint8_t>(element)));
    case DType::kInt8:
      return number<int8_t>(element);
    case DType::kInt16:
      return number<int16_t>(element);
    case DType::kInt32:
      return number<int32_t>(element);
    case DType::kInt64:
      return number<int64_t>(element);
    case DType::kUInt8:
      return number<uint8_t>(element);
    case DType::kUInt16:
      return number<uint16_t>(element);
    case DType::kUInt32:
      return number<uint32_t>(element);
    case DType::kUInt64:
      return number<uint64_t>(element);
    case DType::kBool:
      return load<uint8_t>(element) != 0 ? 1 : 0;
    case DType::kFloat4E2M1FNx2:
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2:
      break;
  }
  return std::bit_cast<double>(uint64_t{0x7ff8000000000000});  // packed types have no single value
}

}  // namespace milepost
