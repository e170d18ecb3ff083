#include "train/run/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "milepost/base/error.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string new_folder(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("events-" + name);
  std::filesystem::remove_all(folder);
  return folder.string();
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Crc32c, GivesTheKnownValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
}

TEST(EventRecord, HasLengthPayloadAndTwoMaskedSums) {
  const std::string record = event_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST(ScalarEvent, IsTheProtocolBuffer) {
  const std::vector<Scalar> scalars = {{"t", 1.0}};
  EXPECT_EQ(scalar_event(0, 300, scalars),
            std::string("\x09\0\0\0\0\0\0\0\0"   // 1: wall time
                        "\x10\xac\x02"           // 2: step
                        "\x2a\x0a"               // 5: summary
                        "\x0a\x08\x0a\x01t\x15"  // value, tag, simple value
                        "\0\0\x80\x3f",
                        24));
}

TEST(EventFile, BeginsWithItsVersion) {
  const EventFile file(new_folder("version"));
  EXPECT_THAT(content(file.path()), HasSubstr("brain.Event:2"));
  EXPECT_THAT(std::filesystem::path(file.path()).filename().string(), StartsWith("events.out.tfevents."));
}

TEST(EventFile, ShowsAStepAtOnce) {
  EventFile file(new_folder("step"));
  const std::vector<Scalar> scalars = {{"grad_norm", 2.0}};
  file.write(1, scalars);
  EXPECT_THAT(content(file.path()), HasSubstr("grad_norm"));
}

TEST(EventFile, NamesAFolderThatCannotBeMade) {
  const std::string folder = new_folder("file");
  std::ofstream(folder) << "a file";
  try {
    const EventFile file(folder + "/below");
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_THAT(error.path(), EndsWith("/below"));
  }
}

}  // namespace
}  // namespace milepost::train
