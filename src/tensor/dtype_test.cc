#include "milepost/tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string_view>
#include <vector>

namespace milepost {
namespace {

std::vector<DTypeInfo> all_dtypes() {
  std::vector<DTypeInfo> infos;
  for (int i = 0; i < kNumDTypes; ++i) infos.push_back(dtype_info(static_cast<DType>(i)));
  return infos;
}

TEST(DType, NamesAreDistinctAndLeadBack) {
  std::set<std::string_view> names, short_names;
  for (const DTypeInfo& info : all_dtypes()) {
    EXPECT_EQ(dtype_from_name(info.name), info.dtype);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(short_names.insert(info.short_name).second) << info.short_name;
  }
}

TEST(DType, FormatsNamesLeadBackWhereThereIsOne) {
  for (const DTypeInfo& info : all_dtypes()) {
    if (!info.safetensors.empty()) {
      EXPECT_EQ(dtype_from_safetensors(info.safetensors), info.dtype);
    }
    if (!info.storage.empty()) {
      EXPECT_EQ(dtype_from_storage(info.storage), info.dtype);
    }
  }
}

TEST(DType, UnknownAndEmptyNamesAreNothing) {
  EXPECT_FALSE(dtype_from_name("float33"));
  EXPECT_FALSE(dtype_from_name(""));
  EXPECT_FALSE(dtype_from_safetensors("f32")) << "case matters";
  EXPECT_FALSE(dtype_from_safetensors("")) << "complex32 has no name there";
  EXPECT_FALSE(dtype_from_storage("")) << "uint16 has no storage class";
  EXPECT_FALSE(dtype_from_storage("UntypedStorage"));
}

TEST(DType, KnowsTheNamesOfTheFormats) {
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::kBFloat16);
  EXPECT_EQ(dtype_from_storage("CharStorage"), DType::kInt8);
  EXPECT_EQ(dtype_from_storage("ByteStorage"), DType::kUInt8);
  EXPECT_EQ(dtype_from_storage("ComplexDoubleStorage"), DType::kComplex128);
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), DType::kFloat8E4M3FN);
  EXPECT_EQ(dtype_from_safetensors("F8_E8M0"), DType::kFloat8E8M0FNU);
  EXPECT_EQ(dtype_from_safetensors("BOOL"), DType::kBool);
}

TEST(DType, HasTheSizeThatItsNameSays) {
  EXPECT_EQ(dtype_size(DType::kFloat64), 8);
  EXPECT_EQ(dtype_size(DType::kBFloat16), 2);
  EXPECT_EQ(dtype_size(DType::kBool), 1);
  EXPECT_EQ(dtype_size(DType::kComplex128), 16);
  EXPECT_EQ(dtype_size(DType::kComplex32), 4);
  EXPECT_EQ(dtype_size(DType::kFloat4E2M1FNx2), 1) << "two values, one element";
  EXPECT_TRUE(is_sub_byte(DType::kFloat6E2M3));
  EXPECT_FALSE(is_sub_byte(DType::kFloat8E8M0FNU));
}

TEST(DTypeBytes, MultipliesAndRefusesWhatIsNoSize) {
  EXPECT_EQ(dtype_bytes(DType::kFloat32, 3), 12);
  EXPECT_EQ(dtype_bytes(DType::kFloat32, 0), 0);
  EXPECT_EQ(dtype_bytes(DType::kFloat6E2M3, 4), 3);
  EXPECT_FALSE(dtype_bytes(DType::kFloat6E2M3, 3)) << "18 bits";
  EXPECT_FALSE(dtype_bytes(DType::kFloat32, -1));
  EXPECT_FALSE(dtype_bytes(DType::kInt8, std::numeric_limits<int64_t>::max()));
}

}  // namespace
}  // namespace milepost
