#include "format/torch_zip_tensor_pickle.h"

#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::torch_zip {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

ByteVector pickle_of(DType dtype, const Dims& sizes) {
  ByteVector out;
  append_tensor_pickle(out, dtype, sizes);
  return out;
}

// What the matcher accepts, the machine must read alike.
void expect_same_as_machine(Bytes bytes, const TensorPickle& tensor) {
  pickle::Document document = pickle::read(bytes, {}, "test");
  ASSERT_EQ(document.root().kind(), pickle::Kind::kTensor);
  const pickle::TensorRef& ref = document.root().tensor();
  EXPECT_EQ(ref.dtype, tensor.dtype);
  EXPECT_EQ(ref.storage_key, tensor.storage_key);
  EXPECT_EQ(ref.storage_bytes, tensor.storage_bytes);
  EXPECT_EQ(ref.storage_offset, tensor.storage_offset);
  EXPECT_EQ(Dims(ref.sizes.begin(), ref.sizes.end()), tensor.sizes);
  EXPECT_EQ(Dims(ref.strides.begin(), ref.strides.end()), tensor.strides);
  EXPECT_FALSE(ref.conj || ref.neg || ref.is_parameter);
}

const std::vector<Dims> kShapes = {
    {},     {1},        {0},          {255},           {256},
    {3, 5}, {0, 7, 3},  {2, 3, 4},    {1, 1, 1, 1},    {65536},
    {7, 0}, {70000, 3}, {2147483648}, {3, 1431655766}, {2, 2, 2, 2, 2, 2, 2, 2}};

TEST(TensorPickle, IsMatchedAsWritten) {
  for (int d = 0; d < kNumDTypes; ++d) {
    auto dtype = static_cast<DType>(d);
    if (!dtype_info(dtype).in_torch) continue;
    for (const Dims& sizes : kShapes) {
      ByteVector bytes = pickle_of(dtype, sizes);
      TensorPickle tensor;
      ASSERT_TRUE(match_tensor_pickle(bytes, &tensor)) << dtype_name(dtype) << dims_text(sizes);
      EXPECT_EQ(tensor.dtype, dtype);
      EXPECT_EQ(tensor.storage_key, "0");
      EXPECT_EQ(tensor.storage_bytes, num_elements(sizes) * dtype_size(dtype));
      EXPECT_EQ(tensor.storage_offset, 0);
      EXPECT_EQ(tensor.sizes, sizes);
      EXPECT_EQ(tensor.strides, row_major_strides(sizes));
      expect_same_as_machine(bytes, tensor);
    }
  }
}

// Opcodes of _rebuild_tensor_v2 without memo numbers, around the arguments.
std::string v2_pickle(std::string_view count, std::string_view offset_sizes_strides) {
  std::string text =
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
      "X\x01\0\0\0"
      "7X\x06\0\0\0cuda:0"s;
  text += count;
  text += "tQ";
  text += offset_sizes_strides;
  text +=
      "\x89"
      "ccollections\nOrderedDict\n)RtR.";
  return text;
}

TEST(TensorPickle, IsMatchedWithoutMemoNumbers) {
  std::string text = v2_pickle("K\x0c", "K\x02K\x02K\x03\x86K\x03K\x01\x86");
  TensorPickle tensor;
  ASSERT_TRUE(match_tensor_pickle(as_bytes(text), &tensor));
  EXPECT_EQ(tensor.storage_key, "7");
  EXPECT_EQ(tensor.storage_bytes, 48);
  EXPECT_EQ(tensor.storage_offset, 2);
  EXPECT_EQ(tensor.sizes, (Dims{2, 3}));
  EXPECT_EQ(tensor.strides, (Dims{3, 1}));
  expect_same_as_machine(as_bytes(text), tensor);
}

TEST(TensorPickle, IsNotMatchedWhenItLeavesItsStorage) {
  TensorPickle tensor;
  auto matches = [&](std::string_view count, std::string_view view) {
    return match_tensor_pickle(as_bytes(v2_pickle(count, view)), &tensor);
  };
  EXPECT_TRUE(matches("K\x08", "K\x02K\x02K\x03\x86K\x03K\x01\x86"));
  EXPECT_FALSE(matches("K\x07", "K\x02K\x02K\x03\x86K\x03K\x01\x86"));
  EXPECT_FALSE(matches("K\x0c", "K\x02K\x02K\x03\x86K\x03\x85")) << "fewer strides";
  EXPECT_FALSE(matches("K\x0c", "K\x02K\x02K\x03\x85K\x03K\x01\x86")) << "wrong tuple opcode";
  EXPECT_FALSE(matches("J\xff\xff\xff\xff", "K\x00)K\x01\x85"sv)) << "negative storage";
  EXPECT_FALSE(matches("K\x0c", "J\xff\xff\xff\xff))")) << "negative offset";
  EXPECT_FALSE(matches("K\x0c", "K\x01\x8a\x01\xff\x85K\x01\x85")) << "negative size";
  std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_FALSE(matches("K\x0c", std::string("K\x01") + huge + huge + "\x86" + huge + huge + "\x86"));
  EXPECT_FALSE(matches(huge, "K\x01K\x01\x85K\x01\x85")) << "storage of more than 2^63 bytes";
}

TEST(TensorPickle, IsNotMatchedWhenCutOrChanged) {
  ByteVector bytes = pickle_of(DType::kUInt16, {2, 3});
  TensorPickle tensor;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(match_tensor_pickle(Bytes(bytes).first(size), &tensor)) << size;
  }
  int matched = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int flip = 1; flip < 256; ++flip) {
      ByteVector changed = bytes;
      changed[i] ^= static_cast<std::byte>(flip);
      if (!match_tensor_pickle(changed, &tensor)) continue;
      ++matched;
      expect_same_as_machine(changed, tensor);
    }
  }
  EXPECT_GT(matched, 0);
}

TEST(TensorPickle, CannotHoldWhatTorchLacks) {
  ByteVector out;
  EXPECT_THROW(append_tensor_pickle(out, DType::kFloat6E2M3, Dims{4}), FormatError);
}

TEST(TensorPickle, RowMajorIgnoresDimensionsOfOne) {
  EXPECT_TRUE(is_row_major(Dims{}, Dims{}));
  EXPECT_TRUE(is_row_major(Dims{2, 3}, Dims{3, 1}));
  EXPECT_TRUE(is_row_major(Dims{2, 1, 3}, Dims{3, 99, 1}));
  EXPECT_TRUE(is_row_major(Dims{1}, Dims{0}));
  EXPECT_FALSE(is_row_major(Dims{2, 3}, Dims{1, 2}));
  EXPECT_FALSE(is_row_major(Dims{2, 3}, Dims{4, 1}));
  EXPECT_FALSE(is_row_major(Dims{2}, Dims{0}));
}

TEST(TensorPickle, ViewEndIsBehindTheLastElement) {
  EXPECT_EQ(view_end(0, Dims{}, Dims{}), 1);
  EXPECT_EQ(view_end(5, Dims{2, 3}, Dims{10, 2}), 5 + 10 + 4 + 1);
  EXPECT_EQ(view_end(5, Dims{2, 0}, Dims{10, 2}), 0);
  EXPECT_EQ(view_end(0, Dims{INT64_MAX}, Dims{0}), 1);
  EXPECT_EQ(view_end(0, Dims{INT64_MAX, INT64_MAX}, Dims{2, 2}), -1);
  EXPECT_EQ(view_end(INT64_MAX, Dims{1}, Dims{1}), -1);
}

}  // namespace
}  // namespace milepost::torch_zip
