#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "format/zip_test_archive.h"
#include "milepost/base/error.h"
#include "milepost/format/zip.h"

namespace milepost::zip {
namespace {

using testing::HasSubstr;

std::string deflated(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TestArchive one_record(TestRecord record) {
  TestArchive archive;
  archive.records = {std::move(record)};
  return archive;
}

TestRecord deflated_record(std::string_view text) {
  return {.name = "a/x",
          .payload = deflated(text),
          .method = kDeflated,
          .size = static_cast<int64_t>(text.size()),
          .crc = crc32(0, as_bytes(text))};
}

std::string read_first(const TestArchive& archive, int64_t max_bytes = 1 << 20) {
  MemorySource source = archive.source();
  std::vector<Record> records = read_directory(source);
  return std::string(as_text(read_record(source, records[0], max_bytes, true)));
}

FormatError refusal(const TestArchive& archive, int64_t max_bytes = 1 << 20) {
  try {
    read_first(archive, max_bytes);
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "test.zip");
    EXPECT_EQ(error.offset(), 0);
    return error;
  }
  ADD_FAILURE() << "was accepted";
  return {ErrorCode::kIo, ""};
}

TEST(ZipRecord, ReadsStoredPayload) {
  EXPECT_EQ(read_first(one_record({.name = "a/x", .payload = "some bytes"})), "some bytes");
  EXPECT_EQ(read_first(one_record({.name = "a/x"})), "");
  EXPECT_EQ(read_first(one_record({.name = std::string(1000, 'n'), .payload = "long name"})), "long name");
}

TEST(ZipRecord, InflatesDeflatedPayload) {
  std::string text(3000, 'x');
  for (size_t i = 0; i < text.size(); i += 3) text[i] = static_cast<char>(i);
  EXPECT_EQ(read_first(one_record(deflated_record(text))), text);
  EXPECT_EQ(read_first(one_record(deflated_record(""))), "");
}

TEST(ZipRecord, RefusesDeflatedPayloadOfAnotherSize) {
  for (int64_t wrong : {-1, 1}) {
    TestRecord record = deflated_record("twenty bytes of text");
    record.size += wrong;
    EXPECT_THAT(refusal(one_record(record)).what(), HasSubstr("does not inflate"));
  }
  TestRecord record = deflated_record("twenty bytes of text");
  record.payload += "x";
  EXPECT_EQ(refusal(one_record(record)).code(), ErrorCode::kBadFormat);
  record.payload.resize(5);
  EXPECT_EQ(refusal(one_record(record)).code(), ErrorCode::kBadFormat);
}

TEST(ZipRecord, RefusesInflationThatTheFileCannotJustify) {
  EXPECT_EQ(refusal(one_record(deflated_record(std::string(500'000, '\0')))).code(), ErrorCode::kTooLarge);
  TestRecord record = deflated_record("small");
  record.size = 0xfffffffe;
  EXPECT_EQ(refusal(one_record(record), INT64_MAX).code(), ErrorCode::kTooLarge);
}

TEST(ZipRecord, RefusesMoreThanTheLimit) {
  TestArchive archive = one_record({.name = "a/x", .payload = "some bytes"});
  EXPECT_EQ(read_first(archive, 10), "some bytes");
  EXPECT_EQ(refusal(archive, 9).code(), ErrorCode::kTooLarge);
}

TEST(ZipRecord, ChecksTheChecksumUnlessItIsZero) {
  TestRecord record{.name = "a/x", .payload = "some bytes"};
  record.crc = 1;
  EXPECT_EQ(refusal(one_record(record)).code(), ErrorCode::kChecksum);
  record.crc = 0;
  EXPECT_EQ(read_first(one_record(record)), "some bytes");
}

TEST(ZipRecord, RefusesOtherMethods) {
  FormatError error = refusal(one_record({.name = "a/x", .payload = "z", .method = 93}));
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("method 93"));
}

TEST(ZipRecord, RefusesLocalHeadersThatDisagree) {
  TestRecord record{.name = "a/x", .payload = "some bytes"};
  record.local_name = "a/y";
  EXPECT_THAT(refusal(one_record(record)).what(), HasSubstr("another name"));
  record.local_name = "a/xx";
  EXPECT_THAT(refusal(one_record(record)).what(), HasSubstr("another name"));
  record = {.name = "a/x", .payload = "some bytes"};
  record.local_method = 8;
  EXPECT_THAT(refusal(one_record(record)).what(), HasSubstr("another method"));
}

TEST(ZipRecord, RefusesAHeaderThatIsNone) {
  std::string bytes = one_record({.name = "a/x", .payload = "some bytes"}).bytes();
  bytes[0] = 'Q';
  MemorySource source(as_bytes(bytes), "q.zip");
  std::vector<Record> records = read_directory(source);
  EXPECT_THROW(locate(source, records[0]), FormatError);
}

TEST(ZipRecord, RefusesAnExtraFieldThatPushesThePayloadIntoWhatFollows) {
  std::string bytes = one_record({.name = "a/x", .payload = "some bytes"}).bytes();
  bytes[28] = 1;
  MemorySource source(as_bytes(bytes), "q.zip");
  std::vector<Record> records = read_directory(source);
  try {
    locate(source, records[0]);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOverlap);
  }
}

TEST(ZipRecord, RefusesSizesOfTheLocalHeaderThatDisagree) {
  std::string bytes = one_record({.name = "a/x", .payload = "some bytes"}).bytes();
  bytes[22] = 9;
  MemorySource source(as_bytes(bytes), "q.zip");
  std::vector<Record> records = read_directory(source);
  EXPECT_THROW(locate(source, records[0]), FormatError);
  bytes[6] = 8;  // a descriptor follows: the sizes here mean nothing
  records[0].data_offset = -1;
  locate(source, records[0]);
  EXPECT_EQ(records[0].data_offset, 33);
}

}  // namespace
}  // namespace milepost::zip
