#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/torch_zip_tensor_pickle.h"
#include "format/torch_zip_test_source.h"
#include "format/zip_test_archive.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

using testing::HasSubstr;

ByteVector item_of(DType dtype, const Dims& sizes) {
  ByteVector out, payload(static_cast<size_t>(num_elements(sizes) * dtype_size(dtype)), std::byte{5});
  append_tensor_item_head(out, dtype, sizes);
  out.insert(out.end(), payload.begin(), payload.end());
  append_tensor_item_tail(out, dtype, sizes, crc32(0, payload));
  return out;
}

std::string tensor_pickle(DType dtype, const Dims& sizes) {
  ByteVector pickle;
  append_tensor_pickle(pickle, dtype, sizes);
  return std::string(as_text(pickle));
}

// The records of an int16 tensor of shape [2, 3], to be changed.
std::vector<NamedPayload> int16_records() {
  return {{"x/data.pkl", tensor_pickle(DType::kInt16, {2, 3})},
          {"x/data/0", std::string(12, 'p')},
          {"x/version", "3\n"}};
}

TensorItem resolve(const std::vector<NamedPayload>& records) {
  MemorySource source(archive_of(records), "item");
  return resolve_tensor(source);
}

FormatError refusal(const std::vector<NamedPayload>& records) {
  try {
    resolve(records);
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "item");
    return error;
  }
  ADD_FAILURE() << "was accepted";
  return {ErrorCode::kIo, ""};
}

TEST(ResolveTensor, FindsThePayloadOfAnItem) {
  CountingSource source(item_of(DType::kFloat32, {3, 5}));
  TensorItem item = resolve_tensor(source);
  EXPECT_EQ(item.dtype, DType::kFloat32);
  EXPECT_EQ(item.sizes, (Dims{3, 5}));
  EXPECT_TRUE(item.row_major);
  EXPECT_EQ(item.layout, (StorageLayout{0, Dims{5, 1}, false, false, false}));
  EXPECT_EQ(item.payload_bytes, 60);
  EXPECT_EQ(item.payload_offset, tensor_item_frame(DType::kFloat32, Dims{3, 5}).head_bytes);
  EXPECT_EQ(item.crc32, crc32(0, ByteVector(60, std::byte{5})));
}

TEST(ResolveTensor, ReadsASmallItemOnceAndALargeOneTwice) {
  CountingSource small(item_of(DType::kFloat32, {3, 5}));
  resolve_tensor(small);
  EXPECT_EQ(small.reads, 1);
  for (const Dims& sizes : {Dims{100'000}, Dims{1, 2, 3, 4, 5, 6, 7, 8}}) {
    CountingSource large(item_of(DType::kFloat64, sizes));
    EXPECT_EQ(resolve_tensor(large).sizes, sizes);
    EXPECT_EQ(large.reads, 2);
    EXPECT_EQ(large.bytes_read, 2048);
  }
}

TEST(ResolveTensor, FindsAnItemInsideAFile) {
  ByteVector file(1000, std::byte{'P'});
  ByteVector first = item_of(DType::kInt8, {7}), second = item_of(DType::kInt64, {2000});
  file.insert(file.end(), first.begin(), first.end());
  file.insert(file.end(), second.begin(), second.end());
  file.resize(file.size() + 333);
  auto first_bytes = static_cast<int64_t>(first.size()), second_bytes = static_cast<int64_t>(second.size());
  CountingSource counted(file);
  MemorySource memory(file, "file");
  for (const ByteSource* source :
       {static_cast<const ByteSource*>(&counted), static_cast<const ByteSource*>(&memory)}) {
    EXPECT_EQ(resolve_tensor(*source, 1000, first_bytes).dtype, DType::kInt8);
    EXPECT_EQ(resolve_tensor(*source, 1000 + first_bytes, second_bytes).sizes, (Dims{2000}));
  }
}

TEST(ResolveTensor, NamesThePlaceInTheFile) {
  std::vector<NamedPayload> records = int16_records();
  records[1].payload.resize(10);
  ByteVector bytes(500), item = archive_of(records);
  bytes.insert(bytes.end(), item.begin(), item.end());
  MemorySource file(std::move(bytes), "file");
  try {
    resolve_tensor(file, 500, static_cast<int64_t>(item.size()));
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "file");
    EXPECT_GT(error.offset(), 500);
    EXPECT_THAT(error.what(), HasSubstr("has 10 bytes, but the pickle says 12"));
  }
}

TEST(ResolveTensor, RefusesARangeOutsideTheFile) {
  MemorySource file(item_of(DType::kInt8, {7}), "file");
  const std::pair<int64_t, int64_t> kRanges[] = {{0, file.size() + 1}, {-1, 10},        {10, -1},
                                                 {INT64_MAX, 10},      {10, INT64_MAX}, {file.size(), 1}};
  for (auto [offset, length] : kRanges) {
    try {
      resolve_tensor(file, offset, length);
      FAIL();
    } catch (const FormatError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBounds);
    }
  }
}

TEST(ResolveTensor, NeedsNoMoreThanPickleVersionAndStorage) {
  EXPECT_TRUE(resolve(int16_records()).row_major);
  std::vector<NamedPayload> records = int16_records();
  std::swap(records[0], records[2]);
  EXPECT_EQ(resolve(records).payload_bytes, 12);
}

TEST(ResolveTensor, RefusesArchivesThatLackARecord) {
  std::vector<NamedPayload> records = int16_records();
  records.pop_back();
  EXPECT_THAT(refusal(records).what(), HasSubstr("no version record"));
  records = int16_records();
  records.erase(records.begin());
  EXPECT_THAT(refusal(records).what(), HasSubstr("no record 'x/data.pkl'"));
  records = int16_records();
  records.erase(records.begin() + 1);
  EXPECT_THAT(refusal(records).what(), HasSubstr("data/0"));
  EXPECT_THAT(refusal({}).what(), HasSubstr("empty"));
  EXPECT_THAT(refusal({{"data.pkl", ""}}).what(), HasSubstr("no folder"));
}

TEST(ResolveTensor, LooksBelowTheFirstRecordsFolderOnly) {
  std::vector<NamedPayload> records = int16_records();
  records.push_back({"y/data.pkl", "junk"});
  records.push_back({"y/constants.pkl", "junk"});
  EXPECT_EQ(resolve(records).dtype, DType::kInt16);
  records[0].name = "z/data.pkl";
  EXPECT_THROW(throw refusal(records), FormatError);
}

TEST(ResolveTensor, KnowsVersions1To10) {
  for (const char* good : {"1", "2\n", "10\n", "10\r\n"}) {
    std::vector<NamedPayload> records = int16_records();
    records[2].payload = good;
    EXPECT_EQ(resolve(records).payload_bytes, 12) << good;
  }
  for (const char* bad : {"", "0", "-1", "3x", "x"}) {
    std::vector<NamedPayload> records = int16_records();
    records[2].payload = bad;
    EXPECT_EQ(refusal(records).code(), ErrorCode::kBadFormat) << bad;
  }
  std::vector<NamedPayload> records = int16_records();
  records[2].payload = "99";
  FormatError error = refusal(records);
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("version 99"));
}

TEST(ResolveTensor, TakesBigEndianAsALayout) {
  std::vector<NamedPayload> records = int16_records();
  records.push_back({"x/byteorder", "big"});
  TensorItem item = resolve(records);
  EXPECT_TRUE(item.layout.byte_swap);
  EXPECT_FALSE(item.row_major);
  records.back().payload = "little";
  EXPECT_TRUE(resolve(records).row_major);
  records.back().payload = "middle";
  FormatError error = refusal(records);
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("unknown byte order 'middle'"));
  records[0].payload = tensor_pickle(DType::kInt8, {12});
  records.back().payload = "big";
  EXPECT_TRUE(resolve(records).row_major) << "single bytes have no order";
}

TEST(ResolveTensor, RefusesTorchScript) {
  std::vector<NamedPayload> records = int16_records();
  records.push_back({"x/constants.pkl", "K\1."});
  FormatError error = refusal(records);
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("TorchScript"));
}

TEST(ResolveTensor, RefusesDeflatedPayloads) {
  zip::TestArchive archive;
  for (const NamedPayload& record : int16_records())
    archive.records.push_back({.name = record.name, .payload = record.payload});
  MemorySource sound = archive.source();
  EXPECT_EQ(resolve_tensor(sound).payload_bytes, 12);
  archive.records[1].method = zip::kDeflated;
  MemorySource deflated = archive.source();
  try {
    resolve_tensor(deflated);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("compressed"));
  }
}

TEST(ResolveTensor, RefusesObjects) {
  std::vector<NamedPayload> records = int16_records();
  records[0].payload = std::string("\x80\x02K\x07.", 5);
  EXPECT_THAT(refusal(records).what(), HasSubstr("holds an int, not a tensor"));
}

TEST(ResolveTensor, RefusesEveryTruncation) {
  ByteVector whole = item_of(DType::kFloat16, {2, 3});
  for (size_t size = 0; size < whole.size(); ++size) {
    CountingSource source(ByteVector(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_THROW(resolve_tensor(source), FormatError) << size;
  }
}

TEST(ResolveTensor, SurvivesEveryFlippedByte) {
  ByteVector whole = item_of(DType::kFloat16, {2, 3});
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int flip : {0x01, 0x20, 0x80, 0xff}) {
      ByteVector damaged = whole;
      damaged[i] ^= static_cast<std::byte>(flip);
      CountingSource source(std::move(damaged));
      try {
        TensorItem item = resolve_tensor(source);
        EXPECT_EQ(item.payload_bytes, 12);
      } catch (const FormatError&) {
      }
    }
  }
}

}  // namespace
}  // namespace milepost::torch_zip
