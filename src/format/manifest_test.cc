#include "milepost/format/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"

namespace milepost::manifest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const std::string kDigestA(64, 'a'), kDigest0(64, '0');

Hashes parse(std::string_view text) { return read(MemorySource(as_bytes(text), "step/manifest")); }

std::string refusal(std::string_view text) {
  try {
    parse(text);
  } catch (const CheckpointManifestError& error) {
    EXPECT_EQ(error.path(), "step/manifest");
    return error.what();
  }
  ADD_FAILURE() << "was read: " << text;
  return {};
}

std::string with_hash(const std::string& hash) {
  return R"({"algorithm": "sha256", "granularity": "file", "hash": )" + hash + "}";
}

TEST(Manifest, IsWrittenAsPythonDoesWithSortedKeys) {
  EXPECT_EQ(
      write({{"b", kDigestA}, {".metadata", kDigest0}, {"\u00fc\x7f", kDigest0}}),
      "{\n  \"algorithm\": \"sha256\",\n  \"granularity\": \"file\",\n  \"hash\": {\n    \".metadata\": \"" +
          kDigest0 + "\",\n    \"b\": \"" + kDigestA + "\",\n    \"\\u00fc\\u007f\": \"" + kDigest0 +
          "\"\n  }\n}");
  EXPECT_EQ(write({}), "{\n  \"algorithm\": \"sha256\",\n  \"granularity\": \"file\",\n  \"hash\": {}\n}");
}

TEST(Manifest, ReadsBackSortedByName) {
  const Hashes hashes = {{"__1_0.distcp", kDigestA}, {"\u00fc", kDigest0}, {".metadata", kDigest0}};
  EXPECT_THAT(parse(write(hashes)), ElementsAre(hashes[2], hashes[0], hashes[1]));
  EXPECT_TRUE(parse(write({})).empty());
}

TEST(Manifest, TakesDigestsInEitherCase) {
  EXPECT_THAT(parse(with_hash(R"({"f": ")" + std::string(64, 'A') + "\"}")),
              ElementsAre(Pair("f", kDigestA)));
}

TEST(Manifest, RefusesOtherAlgorithmsAndGranularities) {
  EXPECT_THAT(refusal(R"({"algorithm": "md5", "granularity": "file", "hash": {}})"), HasSubstr("md5"));
  EXPECT_THAT(refusal(R"({"algorithm": "sha256", "granularity": "block", "hash": {}})"), HasSubstr("block"));
  EXPECT_THAT(refusal(R"({"algorithm": 256, "granularity": "file", "hash": {}})"), HasSubstr("algorithm"));
}

TEST(Manifest, RefusesMissingAndRepeatedMembers) {
  EXPECT_THAT(refusal(R"({"granularity": "file", "hash": {}})"), HasSubstr("algorithm"));
  EXPECT_THAT(refusal(R"({"algorithm": "sha256", "hash": {}})"), HasSubstr("granularity"));
  EXPECT_THAT(refusal(R"({"algorithm": "sha256", "granularity": "file"})"), HasSubstr("hash"));
  EXPECT_THAT(refusal(R"({"hash": {}, "hash": {}})"), HasSubstr("twice"));
  EXPECT_THAT(refusal(with_hash("{\"f\": \"" + kDigestA + "\", \"f\": \"" + kDigest0 + "\"}")),
              HasSubstr("'f'"));
}

TEST(Manifest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../f", "/f", "a/b", "", ".", "..", "a\\\\b", "f\\u0000"}) {
    refusal(with_hash("{\"" + std::string(name) + "\": \"" + kDigestA + "\"}"));
  }
}

TEST(Manifest, RefusesWhatIsNoDigest) {
  for (const std::string& digest :
       {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'), std::string()}) {
    EXPECT_THAT(refusal(with_hash("{\"f\": \"" + digest + "\"}")), HasSubstr("'f'"));
  }
  refusal(with_hash(R"({"f": 1})"));
  refusal(with_hash(R"({"f": {}})"));
  refusal(with_hash("[]"));
}

TEST(Manifest, RefusesWhatIsNotJson) {
  for (const char* text : {"", "pending\n", "[]", "{", "{} {}", "null"}) refusal(text);
}

TEST(Manifest, RefusesToWriteNamesThatAreNotUtf8) {
  EXPECT_THROW(write({{"\xff", kDigestA}}), CheckpointManifestError);
}

}  // namespace
}  // namespace milepost::manifest
