#include "format/torch_zip_frame.h"

#include <gtest/gtest.h>

#include "format/torch_zip_test_source.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"
#include "milepost/format/zip.h"

namespace milepost::torch_zip {
namespace {

ByteVector item_of(DType dtype, const Dims& sizes, Bytes payload) {
  ByteVector out;
  append_tensor_item_head(out, dtype, sizes);
  out.insert(out.end(), payload.begin(), payload.end());
  append_tensor_item_tail(out, dtype, sizes, crc32(0, payload));
  return out;
}

ByteVector pattern(int64_t size) {
  ByteVector bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

const std::vector<Dims> kShapes = {
    {}, {1}, {0}, {3, 5}, {0, 7, 3}, {2, 3, 4}, {1, 1, 1, 1, 1, 1, 1, 1}, {300, 70}, {66000}};

TEST(TensorItemFrame, HasTheSizesThatAreWritten) {
  for (int d = 0; d < kNumDTypes; ++d) {
    auto dtype = static_cast<DType>(d);
    if (!dtype_info(dtype).in_torch) continue;
    for (const Dims& sizes : kShapes) {
      ItemFrame frame = tensor_item_frame(dtype, sizes);
      ByteVector head, tail;
      append_tensor_item_head(head, dtype, sizes);
      append_tensor_item_tail(tail, dtype, sizes, 0x12345678);
      EXPECT_EQ(frame.head_bytes, static_cast<int64_t>(head.size()));
      EXPECT_EQ(frame.tail_bytes, static_cast<int64_t>(tail.size()));
      EXPECT_EQ(frame.payload_bytes, num_elements(sizes) * dtype_size(dtype));
      EXPECT_EQ(frame.total() % 64, 0);
      EXPECT_EQ(frame.head_bytes % 64, 0);
    }
  }
}

TEST(TensorItemFrame, IsASoundArchiveWithTrueChecksums) {
  for (const Dims& sizes : kShapes) {
    ByteVector payload = pattern(num_elements(sizes) * 2);
    MemorySource item(item_of(DType::kBFloat16, sizes, payload), "item");
    std::vector<zip::Record> records = zip::read_directory(item);
    ASSERT_EQ(records.size(), 7U);
    for (zip::Record& record : records) {
      ByteVector bytes = zip::read_record(item, record, 1 << 20, false);
      EXPECT_EQ(record.crc32, crc32(0, bytes)) << record.name;
    }
    EXPECT_EQ(zip::read_record(item, records[4], 1 << 20, true), payload);
    EXPECT_EQ(as_text(zip::read_record(item, records[5], 10, true)), "3\n");
    EXPECT_EQ(records[6].size, 40);
  }
}

TEST(TensorItemFrame, HasAnIdThatDependsOnTheShapeButNotOnThePayload) {
  auto id = [](const Dims& sizes, Bytes payload) {
    MemorySource item(item_of(DType::kFloat32, sizes, payload), "item");
    std::vector<zip::Record> records = zip::read_directory(item);
    return std::string(as_text(zip::read_record(item, records[6], 40, true)));
  };
  std::string first = id({2, 3}, pattern(24));
  EXPECT_EQ(first, id({2, 3}, ByteVector(24)));
  EXPECT_NE(first, id({3, 2}, pattern(24)));
  EXPECT_EQ(first.find_first_not_of("0123456789"), std::string::npos);
}

TEST(TensorItemFrame, ReachesBeyond4GiB) {
  for (const Dims& sizes : {Dims{(int64_t{1} << 32) - 1}, Dims{1 << 20, 1 << 20}}) {
    ItemFrame frame = tensor_item_frame(DType::kUInt8, sizes);
    ByteVector head, tail;
    append_tensor_item_head(head, DType::kUInt8, sizes);
    append_tensor_item_tail(tail, DType::kUInt8, sizes, 1);
    EXPECT_EQ(frame.head_bytes, static_cast<int64_t>(head.size()));
    EXPECT_EQ(frame.tail_bytes, static_cast<int64_t>(tail.size()));
    EXPECT_EQ(frame.total() % 64, 0);
  }
}

TEST(TensorItemFrame, RefusesDTypesThatTorchLacks) {
  EXPECT_THROW(tensor_item_frame(DType::kFloat6E3M2, Dims{4}), FormatError);
}

TEST(ArchiveFrame, LaysOutAnyNumberOfStorages) {
  for (int64_t n : {0, 1, 3, 20}) {
    std::vector<std::string> keys;
    std::vector<std::string_view> views;
    std::vector<int64_t> sizes;
    std::vector<uint32_t> crcs;
    for (int64_t i = 0; i < n; ++i) {
      keys.push_back(std::to_string(i));
      sizes.push_back(i * 33);
      crcs.push_back(crc32(0, pattern(i * 33)));
    }
    views.assign(keys.begin(), keys.end());
    ArchiveFrame archive("stem", pattern(100), views, sizes, false);
    ByteVector out;
    for (int64_t i = 0; i <= n; ++i) {
      archive.frame().append_literal(out, i, crcs);
      if (i == n) break;
      EXPECT_EQ(archive.frame().storage_position(i), static_cast<int64_t>(out.size()));
      EXPECT_EQ(out.size() % 64, 0U);
      ByteVector payload = pattern(i * 33);
      out.insert(out.end(), payload.begin(), payload.end());
    }
    EXPECT_EQ(archive.frame().total(), static_cast<int64_t>(out.size()));
    MemorySource source(std::move(out), "archive");
    std::vector<zip::Record> records = zip::read_directory(source);
    ASSERT_EQ(static_cast<int64_t>(records.size()), n + 6);
    for (zip::Record& record : records) zip::read_record(source, record, 1000, true);
    EXPECT_EQ(records.front().name, "stem/data.pkl");
    EXPECT_EQ(records.back().name, "stem/.data/serialization_id");
  }
}

}  // namespace
}  // namespace milepost::torch_zip
