#include <gtest/gtest.h>

#include <numeric>

#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/torch_zip.h"

namespace milepost::dcp {
namespace {

ByteVector numbers(int64_t count) {
  ByteVector bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

Item tensor_item(int64_t payload, DType dtype, Dims sizes) { return {payload, dtype, std::move(sizes), -1}; }
Item object_item(int64_t payload, int64_t bytes) { return {payload, DType::kFloat32, {}, bytes}; }

// The file as the engine makes it: parts in order, payload p being numbers().
ByteVector assemble(const DataFileImage& image) {
  ByteVector file;
  std::vector<uint32_t> crcs(static_cast<size_t>(image.num_items()));
  for (int64_t i = 0; i < image.num_parts(); ++i) {
    const FileImage::Part part = image.part(i);
    EXPECT_EQ(part.offset, static_cast<int64_t>(file.size()));
    if (part.payload < 0) {
      image.render(i, crcs, file);
    } else {
      const ByteVector payload = numbers(part.length);
      crcs[static_cast<size_t>(part.payload)] = crc32(0, payload);
      file.insert(file.end(), payload.begin(), payload.end());
    }
    EXPECT_EQ(part.offset + part.length, static_cast<int64_t>(file.size()));
  }
  EXPECT_EQ(image.size(), static_cast<int64_t>(file.size()));
  return file;
}

TEST(DcpDataFile, LaysItemsEndToEnd) {
  const auto image =
      data_file_image("__0_0.distcp", {object_item(0, 192), tensor_item(1, DType::kFloat32, {3, 5}),
                                       tensor_item(2, DType::kBFloat16, {}), object_item(3, 0),
                                       tensor_item(4, DType::kInt8, {0, 7})});
  EXPECT_EQ(image->name(), "__0_0.distcp");
  EXPECT_TRUE(image->wants_crc());
  assemble(*image);
  int64_t end = 0;
  for (int64_t i = 0; i < image->num_items(); ++i) {
    EXPECT_EQ(image->item_offset(i), end);
    end += image->item_length(i);
  }
  EXPECT_EQ(end, image->size());
  EXPECT_EQ(image->item_length(0), 192);
  EXPECT_EQ(image->item_length(3), 0);
}

TEST(DcpDataFile, ItemsAreTorchArchives) {
  const auto image = data_file_image(
      "f", {object_item(0, 64), tensor_item(1, DType::kFloat32, {3, 5}),
            tensor_item(2, DType::kUInt16, {2, 1, 4, 3, 1}), tensor_item(3, DType::kComplex128, {})});
  const auto file = std::make_shared<MemorySource>(assemble(*image), "f");
  const std::vector<Dims> sizes = {{}, {3, 5}, {2, 1, 4, 3, 1}, {}};
  for (int64_t i = 1; i < 4; ++i) {
    const SliceSource item(file, image->item_offset(i), image->item_length(i));
    const torch_zip::TensorItem tensor = torch_zip::resolve_tensor(item);
    EXPECT_EQ(tensor.sizes, sizes[static_cast<size_t>(i)]);
    EXPECT_TRUE(tensor.row_major);
    EXPECT_EQ(image->item_offset(i) + tensor.payload_offset, image->part(3 * i + 1).offset);
    EXPECT_EQ(tensor.payload_bytes, image->part(3 * i + 1).length);
    EXPECT_EQ(tensor.crc32, crc32(0, numbers(tensor.payload_bytes)));
    EXPECT_EQ(image->part(3 * i + 1).offset % 64, 0);
  }
}

TEST(DcpDataFile, WithoutItemsIsEmpty) {
  const auto image = data_file_image("f", {});
  EXPECT_EQ(image->size(), 0);
  EXPECT_EQ(image->num_parts(), 0);
  EXPECT_FALSE(image->wants_crc());
}

TEST(DcpDataFile, OfObjectsNeedsNoCrc) {
  EXPECT_FALSE(data_file_image("f", {object_item(0, 100)})->wants_crc());
}

TEST(DcpDataFile, RefusesSizesBeyondAllFiles) {
  try {
    data_file_image("f", {object_item(0, INT64_MAX), object_item(1, 1)});
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTooLarge);
    EXPECT_EQ(error.path(), "f");
  }
}

}  // namespace
}  // namespace milepost::dcp
