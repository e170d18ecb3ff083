// DType: every element type that torch or safetensors stores, with its names in each format.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace milepost {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat4E2M1FNx2,  // two 4-bit values a byte; one element is one byte, as in torch
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat6E2M3,
  kFloat6E3M2,  // safetensors only: 6 bits an element, tensors are whole or not at all
};
inline constexpr int kNumDTypes = static_cast<int>(DType::kFloat6E3M2) + 1;

enum class DTypeKind : uint8_t { kFloat, kInt, kUInt, kBool, kComplex, kPacked };

struct DTypeInfo {
  DType dtype;
  std::string_view name;        // torch's: "float32", "float8_e4m3fn"; "float6_e2m3" where torch has none
  std::string_view short_name;  // for people: "f32", "bf16", "f8_e4m3"
  std::string_view
      storage;  // torch's storage class: "FloatStorage"; empty: UntypedStorage with _rebuild_tensor_v3
  std::string_view safetensors;  // "F32", "BF16"; empty: safetensors cannot hold it
  int bits;                      // an element
  DTypeKind kind;
  bool in_torch;  // torch has this dtype
};

const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
// Bytes an element; requires a whole number of them (all but the two 6-bit types, whose tensors are handled
// as bytes).
inline int64_t dtype_size(DType dtype) { return dtype_info(dtype).bits / 8; }
inline bool is_sub_byte(DType dtype) { return dtype_info(dtype).bits % 8 != 0; }

std::optional<DType> dtype_from_name(std::string_view torch_name);
std::optional<DType> dtype_from_safetensors(std::string_view name);
std::optional<DType> dtype_from_storage(std::string_view torch_storage_class);

// Bytes of `num_elements` elements; nullopt on overflow or when they do not fill whole bytes.
std::optional<int64_t> dtype_bytes(DType dtype, int64_t num_elements);

}  // namespace milepost
