#include "milepost/tensor/dtype.h"

#include <array>

#include "milepost/base/checked_math.h"

namespace milepost {
namespace {

using enum DTypeKind;

constexpr std::array<DTypeInfo, kNumDTypes> kTable = {{
    {DType::kFloat32, "float32", "f32", "FloatStorage", "F32", 32, kFloat, true},
    {DType::kFloat64, "float64", "f64", "DoubleStorage", "F64", 64, kFloat, true},
    {DType::kFloat16, "float16", "f16", "HalfStorage", "F16", 16, kFloat, true},
    {DType::kBFloat16, "bfloat16", "bf16", "BFloat16Storage", "BF16", 16, kFloat, true},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", "f8_e4m3", "", "F8_E4M3", 8, kFloat, true},
    {DType::kFloat8E5M2, "float8_e5m2", "f8_e5m2", "", "F8_E5M2", 8, kFloat, true},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", "f8_e4m3fnuz", "", "F8_E4M3FNUZ", 8, kFloat, true},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", "f8_e5m2fnuz", "", "F8_E5M2FNUZ", 8, kFloat, true},
    {DType::kFloat8E8M0FNU, "float8_e8m0fnu", "f8_e8m0", "", "F8_E8M0", 8, kFloat, true},
    {DType::kFloat4E2M1FNx2, "float4_e2m1fn_x2", "f4x2", "", "F4", 8, kPacked, true},
    {DType::kInt8, "int8", "i8", "CharStorage", "I8", 8, kInt, true},
    {DType::kInt16, "int16", "i16", "ShortStorage", "I16", 16, kInt, true},
    {DType::kInt32, "int32", "i32", "IntStorage", "I32", 32, kInt, true},
    {DType::kInt64, "int64", "i64", "LongStorage", "I64", 64, kInt, true},
    {DType::kUInt8, "uint8", "u8", "ByteStorage", "U8", 8, kUInt, true},
    {DType::kUInt16, "uint16", "u16", "", "U16", 16, kUInt, true},
    {DType::kUInt32, "uint32", "u32", "", "U32", 32, kUInt, true},
    {DType::kUInt64, "uint64", "u64", "", "U64", 64, kUInt, true},
    {DType::kBool, "bool", "bool", "BoolStorage", "BOOL", 8, kBool, true},
    {DType::kComplex32, "complex32", "c32", "", "", 32, kComplex, true},
    {DType::kComplex64, "complex64", "c64", "ComplexFloatStorage", "C64", 64, kComplex, true},
    {DType::kComplex128, "complex128", "c128", "ComplexDoubleStorage", "", 128, kComplex, true},
    {DType::kFloat6E2M3, "float6_e2m3", "f6_e2m3", "", "F6_E2M3", 6, kPacked, false},
    {DType::kFloat6E3M2, "float6_e3m2", "f6_e3m2", "", "F6_E3M2", 6, kPacked, false},
}};

constexpr bool table_is_in_order() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].dtype) != i) return false;
  }
  return true;
}
static_assert(table_is_in_order());

template <auto kField>
std::optional<DType> find(std::string_view text) {
  if (text.empty()) return std::nullopt;
  for (const DTypeInfo& info : kTable) {
    if (info.*kField == text) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kTable[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view torch_name) {
  return find<&DTypeInfo::name>(torch_name);
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  return find<&DTypeInfo::safetensors>(name);
}

std::optional<DType> dtype_from_storage(std::string_view torch_storage_class) {
  return find<&DTypeInfo::storage>(torch_storage_class);
}

std::optional<int64_t> dtype_bytes(DType dtype, int64_t num_elements) {
  int64_t bits;
  if (num_elements < 0 || !checked_mul(num_elements, dtype_info(dtype).bits, &bits) || bits % 8 != 0) {
    return std::nullopt;
  }
  return bits / 8;
}

}  // namespace milepost
