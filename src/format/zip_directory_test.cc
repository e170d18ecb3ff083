#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/zip_test_archive.h"
#include "milepost/base/error.h"
#include "milepost/format/zip.h"

namespace milepost::zip {
namespace {

using testing::HasSubstr;

TestArchive two_records() {
  TestArchive archive;
  archive.records = {{.name = "a/one", .payload = "payload one"}, {.name = "a/two", .payload = "second"}};
  return archive;
}

std::string zip64_extra(std::vector<uint64_t> numbers) {
  std::string extra;
  put_field(extra, kZip64Extra, 2);
  put_field(extra, numbers.size() * 8, 2);
  for (uint64_t number : numbers) put_field(extra, number, 8);
  return extra;
}

// The error that reading the directory gives.
FormatError refusal(const TestArchive& archive) {
  try {
    MemorySource source = archive.source();
    read_directory(source);
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "test.zip");
    return error;
  }
  ADD_FAILURE() << "was accepted";
  return {ErrorCode::kIo, ""};
}
ErrorCode refusal_code(const TestArchive& archive) { return refusal(archive).code(); }

TEST(ZipDirectory, ListsRecordsInItsOrder) {
  MemorySource source = two_records().source();
  std::vector<Record> records = read_directory(source);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].name, "a/one");
  EXPECT_EQ(records[0].header_offset, 0);
  EXPECT_EQ(records[0].size, 11);
  EXPECT_EQ(records[0].end_limit, records[1].header_offset);
  EXPECT_EQ(records[1].name, "a/two");
  EXPECT_EQ(records[1].data_offset, -1);
}

TEST(ZipDirectory, MayBeEmpty) {
  MemorySource source = TestArchive().source();
  EXPECT_TRUE(read_directory(source).empty());
}

TEST(ZipDirectory, AcceptsCommentAndTrailingBytes) {
  TestArchive archive = two_records();
  archive.comment = "made by hand";
  archive.trailing = std::string(5000, '\0');
  MemorySource source = archive.source();
  EXPECT_EQ(read_directory(source).size(), 2U);
}

TEST(ZipDirectory, SearchesTheEndRecordInTheLast64KiBOnly) {
  TestArchive archive = two_records();
  archive.trailing = std::string(65535, '\0');
  MemorySource near = archive.source();
  EXPECT_EQ(read_directory(near).size(), 2U);
  archive.trailing.push_back('\0');
  FormatError error = refusal(archive);
  EXPECT_EQ(error.code(), ErrorCode::kTruncated);
  EXPECT_THAT(error.what(), HasSubstr("cut short"));
}

TEST(ZipDirectory, RefusesWhatIsNoZip) {
  MemorySource text(as_bytes("just some text that is longer than an end record"), "notes.txt");
  try {
    read_directory(text);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFormat);
    EXPECT_THAT(error.what(), HasSubstr("not a zip archive"));
  }
  MemorySource empty(as_bytes(""), "empty");
  EXPECT_THROW(read_directory(empty), FormatError);
}

TEST(ZipDirectory, RefusesSafetensorsByName) {
  MemorySource file(as_bytes(std::string_view("\x40\0\0\0\0\0\0\0{\"w\":{}}", 16)), "__0_0.distcp");
  try {
    read_directory(file);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("safetensors"));
  }
}

TEST(ZipDirectory, RefusesEveryTruncation) {
  for (bool zip64 : {false, true}) {
    TestArchive archive = two_records();
    archive.zip64 = zip64;
    std::string whole = archive.bytes();
    for (size_t size = 0; size < whole.size(); ++size) {
      MemorySource source(as_bytes(whole).first(size), "cut.zip");
      EXPECT_THROW(read_directory(source), FormatError) << size;
    }
  }
}

TEST(ZipDirectory, SurvivesEveryFlippedByte) {
  TestArchive archive = two_records();
  archive.zip64 = true;
  std::string whole = archive.bytes();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      MemorySource source(as_bytes(damaged), "damaged.zip");
      try {
        for (Record& record : read_directory(source)) read_record(source, record, 1000, true);
      } catch (const FormatError&) {
      }
    }
  }
}

TEST(ZipDirectory, RefusesRecordsThatOverlap) {
  TestArchive archive = two_records();
  archive.records[1].offset = 3;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOverlap);
  archive.records[1].offset = 0;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOverlap);
}

TEST(ZipDirectory, RefusesSizesThatReachIntoWhatFollows) {
  TestArchive archive = two_records();
  archive.records[0].size = archive.records[0].compressed_size = 12;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOverlap);
  archive = two_records();
  archive.records[1].size = archive.records[1].compressed_size = 7;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOutOfBounds);
  archive.records[1].size = archive.records[1].compressed_size = 0xfffffffe;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOutOfBounds);
}

TEST(ZipDirectory, AcceptsRecordsInAnyOrder) {
  TestArchive archive = two_records();
  std::swap(archive.records[0].name, archive.records[1].name);
  archive.records[0].offset = 30 + 5 + 11;
  archive.records[0].payload = "payload one";
  archive.records[0].compressed_size = archive.records[0].size = 6;
  archive.records[1].offset = 0;
  MemorySource source = archive.source();
  std::vector<Record> records = read_directory(source);
  EXPECT_EQ(records[0].header_offset, 46);
  EXPECT_EQ(records[1].end_limit, 46);
}

TEST(ZipDirectory, RefusesBadNames) {
  const std::pair<const char*, ErrorCode> kCases[] = {
      {"", ErrorCode::kBadFormat},      {"/etc/passwd", ErrorCode::kPathEscape},
      {"../x", ErrorCode::kPathEscape}, {"a/../../x", ErrorCode::kPathEscape},
      {"a/..", ErrorCode::kPathEscape}, {"a\\..\\x", ErrorCode::kPathEscape},
      {"a/one", ErrorCode::kDuplicate}, {"..", ErrorCode::kPathEscape},
  };
  for (const auto& [name, code] : kCases) {
    TestArchive archive = two_records();
    archive.records[1].name = name;
    EXPECT_EQ(refusal_code(archive), code) << name;
  }
  TestArchive archive = two_records();
  archive.records[1].name = "a..b/...";
  MemorySource source = archive.source();
  EXPECT_EQ(read_directory(source)[1].name, "a..b/...");
}

TEST(ZipDirectory, RefusesDuplicatesAmongManyRecords) {
  TestArchive archive;
  for (int i = 0; i < 40; ++i) archive.records.push_back({.name = "a/" + std::to_string(i)});
  MemorySource source = archive.source();
  EXPECT_EQ(read_directory(source).size(), 40U);
  archive.records[7].name = "a/31";
  FormatError error = refusal(archive);
  EXPECT_EQ(error.code(), ErrorCode::kDuplicate);
  EXPECT_THAT(error.what(), HasSubstr("a/31"));
}

TEST(ZipDirectory, RefusesCountsThatDoNotFitTheDirectory) {
  TestArchive archive = two_records();
  archive.claimed_records = 3;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat);
  archive.claimed_records = 1;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat);
  archive = two_records();
  archive.after_directory = "junk";
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat);
  archive = two_records();
  archive.claimed_directory_bytes = 46 + 46;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kTruncated);
  archive.claimed_directory_bytes = 0x7fffffff;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOutOfBounds);
}

TEST(ZipDirectory, RefusesEncryptedRecordsAndSeveralDisks) {
  TestArchive archive = two_records();
  archive.records[0].flags = 1;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kUnsupported);
  archive = two_records();
  archive.disk = 1;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kUnsupported);
}

TEST(ZipDirectory, TakesZip64NumbersWhereFieldsAreSaturated) {
  TestArchive archive = two_records();
  archive.zip64 = true;
  archive.claimed_directory_offset = archive.claimed_directory_bytes = kSaturated32;
  archive.records[0].size = archive.records[0].compressed_size = kSaturated32;
  archive.records[0].extra = zip64_extra({11, 11});
  archive.records[1].offset = kSaturated32;
  archive.records[1].extra = zip64_extra({46});
  MemorySource source = archive.source();
  std::vector<Record> records = read_directory(source);
  EXPECT_EQ(records[0].size, 11);
  EXPECT_EQ(records[1].header_offset, 46);
}

TEST(ZipDirectory, RefusesZip64NumbersThatLie) {
  TestArchive archive = two_records();
  archive.records[1].offset = kSaturated32;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat) << "no zip64 field";
  archive.records[1].extra = zip64_extra({});
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat) << "empty zip64 field";
  archive.records[1].extra = zip64_extra({uint64_t{1} << 63});
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOutOfBounds);
  archive.records[1].extra = zip64_extra({(uint64_t{1} << 63) - 1});
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOutOfBounds);
  archive = two_records();
  archive.records[0].size = archive.records[0].compressed_size = kSaturated32;
  for (uint64_t size : {(uint64_t{1} << 63) - 1, (uint64_t{1} << 63) - 40, ~uint64_t{0}}) {
    archive.records[0].extra = zip64_extra({size, size});
    EXPECT_THROW(throw refusal(archive), FormatError) << size;
  }
}

TEST(ZipDirectory, RefusesZip64EndRecordsThatLie) {
  TestArchive archive = two_records();
  archive.zip64 = true;
  archive.claimed_directory_offset = 5;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat) << "disagrees with the end record";
  archive.claimed_directory_offset = kSaturated32;
  archive.zip64_directory_offset = INT64_MIN;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kOutOfBounds);
  archive.zip64_directory_offset = -1;
  for (int64_t position : {int64_t{0}, INT64_MAX, int64_t{1} << 40}) {
    archive.zip64_position = position;
    EXPECT_THROW(throw refusal(archive), FormatError) << position;
  }
}

TEST(ZipDirectory, RefusesStoredRecordsOfTwoSizes) {
  TestArchive archive = two_records();
  archive.records[0].size = 10;
  EXPECT_EQ(refusal_code(archive), ErrorCode::kBadFormat);
}

}  // namespace
}  // namespace milepost::zip
