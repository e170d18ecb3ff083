#include <gtest/gtest.h>

#include <cstdio>

#include "format/zip_fields.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/format/zip.h"

namespace milepost::zip {
namespace {

std::string hex(Bytes bytes) {
  std::string text;
  for (std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

std::string local_header(int64_t position, std::string_view name, int64_t size) {
  ByteVector out;
  append_local_header(out, position, name, size);
  EXPECT_EQ(position + static_cast<int64_t>(out.size()),
            payload_position(position, static_cast<int64_t>(name.size()), size));
  return hex(out);
}

constexpr int64_t kLarge = (int64_t{1} << 32) + 64;

// The expected bytes below are from torch 2.13's writer, with two records of 2^32 + 64 bytes.

TEST(ZipWrite, FramesSmallRecordsAsTorchDoes) {
  EXPECT_EQ(local_header(0, "archive/data.pkl", 100),
            "504b03040000080800000000000000000000000000000000000010001200"
            "617263686976652f646174612e706b6c"
            "46420e005a5a5a5a5a5a5a5a5a5a5a5a5a5a");
  ByteVector out;
  append_descriptor(out, 0x5e0e5d8f, 100, 0);
  EXPECT_EQ(out.size(), 16U);
  EXPECT_EQ(hex(Bytes(out).last(8)), "6400000064000000");
}

TEST(ZipWrite, PutsLargeSizesIntoZip64Fields) {
  EXPECT_EQ(local_header(180, "archive/data/0", kLarge),
            "504b0304000008080000000000000000000000000000000000000e002000"
            "617263686976652f646174612f30"
            "0100100040000000010000000000000000000000"
            "464208005a5a5a5a5a5a5a5a");
  ByteVector out;
  append_descriptor(out, 0x1dcdf777, kLarge, 180);
  EXPECT_EQ(hex(out), "504b070877f7cd1d40000000010000004000000001000000");
  out.clear();
  append_directory_entry(out, {"archive/data/0", 180, kLarge, 0x1dcdf777});
  EXPECT_EQ(hex(out),
            "504b010200000000080800000000000077f7cd1dffffffffffffffff0e00140000000000000000000000b4000000"
            "617263686976652f646174612f30"
            "0100100040000000010000004000000001000000");
}

TEST(ZipWrite, PutsLargePositionsIntoZip64Fields) {
  std::string pad(88, '\0');
  for (size_t i = 0; i < pad.size(); ++i) pad[i] = "5a"[i % 2];
  EXPECT_EQ(local_header(4294967640, "archive/data/1", 100),
            "504b0304000008080000000000000000000000000000000000000e003c00"
            "617263686976652f646174612f31"
            "010008005801000001000000"
            "46422c00" +
                pad);
  ByteVector out;
  append_descriptor(out, 0x8946c6ca, 100, 4294967640);
  EXPECT_EQ(out.size(), 24U);
  EXPECT_EQ(hex(Bytes(out).last(16)), "64000000000000006400000000000000");
  EXPECT_EQ(descriptor_size(0, 4294967640), 0);
}

TEST(ZipWrite, PutsBothIntoOneField) {
  EXPECT_EQ(local_header(4294967868, "archive/data/2", kLarge).substr(60, 84),
            "617263686976652f646174612f32"
            "01001800400000000100000000000000000000003c02000001000000");
}

TEST(ZipWrite, SaturatesTheEndRecord) {
  ByteVector out;
  append_end(out, 8589935872, 610, 8);
  EXPECT_EQ(hex(out),
            "504b06062c000000000000001e032d000000000000000000080000000000000008000000000000006202000000000000"
            "0005000002000000"
            "504b060700000000620700000200000001000000"
            "504b0506000000000800080062020000ffffffff0000");
  EXPECT_EQ(static_cast<int64_t>(out.size()), kEndBytes);
}

TEST(ZipWrite, AlignsPayloadsTo64) {
  for (int64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(payload_position(position, 16, 5) % kAlignment, 0);
    EXPECT_LT(payload_position(position, 16, 5) - position, 30 + 16 + 4 + 64);
    EXPECT_EQ(payload_position(position, 16, 5, 17), payload_position(position, 16, 5) + 17);
  }
}

// An archive of two records of 5 GiB, of which only the framing is in memory.
class HugeSource final : public ByteSource {
 public:
  static constexpr int64_t kPayload = int64_t{5} << 30;

  HugeSource() {
    std::vector<Written> records;
    for (std::string_view name : {"a/0", "a/1"}) {
      ByteVector literal;
      append_local_header(literal, size_, name, kPayload);
      records.push_back({name, size_, kPayload, 7});
      int64_t header_position = size_;
      add(std::move(literal));
      size_ += kPayload;
      ByteVector descriptor;
      append_descriptor(descriptor, 7, kPayload, header_position);
      add(std::move(descriptor));
    }
    int64_t directory_position = size_;
    ByteVector directory;
    for (const Written& record : records) append_directory_entry(directory, record);
    auto directory_bytes = static_cast<int64_t>(directory.size());
    append_end(directory, directory_position, directory_bytes, 2);
    add(std::move(directory));
  }
  int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void read_at(int64_t offset, MutableBytes dst) const override {
    std::fill(dst.begin(), dst.end(), std::byte{0});
    auto length = static_cast<int64_t>(dst.size());
    for (const auto& [start, bytes] : parts_) {
      int64_t from = std::max(start, offset);
      int64_t to = std::min(start + static_cast<int64_t>(bytes.size()), offset + length);
      if (from < to) std::copy_n(bytes.data() + (from - start), to - from, dst.data() + (from - offset));
    }
  }

 private:
  void add(ByteVector bytes) {
    parts_.emplace_back(size_, bytes);
    size_ += static_cast<int64_t>(bytes.size());
  }

  std::string name_ = "huge.zip";
  std::vector<std::pair<int64_t, ByteVector>> parts_;
  int64_t size_ = 0;
};

TEST(ZipWrite, LargeRecordsReadBack) {
  HugeSource source;
  std::vector<Record> records = read_directory(source);
  ASSERT_EQ(records.size(), 2U);
  for (Record& record : records) {
    EXPECT_EQ(record.size, HugeSource::kPayload);
    EXPECT_EQ(record.crc32, 7U);
    locate(source, record);
    EXPECT_EQ(record.data_offset % kAlignment, 0);
  }
  EXPECT_GT(records[1].header_offset, HugeSource::kPayload);
}

}  // namespace
}  // namespace milepost::zip
