#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/storage/faulty.h"
#include "milepost/storage/storage.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;

TEST(Location, TakesPathsAsTheyAre) {
  for (const std::string path :
       {"/a/b", "a", "./a:b", "a/b://c", "c:data", "step:10", "a%20b", "x?y", ":", "://x", "/"}) {
    const StorageLocation location = resolve_location(path);
    EXPECT_EQ(location.path, path);
    EXPECT_EQ(location.storage, posix_storage());
  }
}

TEST(Location, TakesFileUris) {
  EXPECT_EQ(resolve_location("file:/a/b").path, "/a/b");
  EXPECT_EQ(resolve_location("file:a/b").path, "a/b");
  EXPECT_EQ(resolve_location("file:///a/b").path, "/a/b");
  EXPECT_EQ(resolve_location("file://localhost/a").path, "/a");
  EXPECT_EQ(resolve_location("FILE:///a%20b?c").path, "/a%20b?c");
  EXPECT_EQ(resolve_location("file:///a").storage, posix_storage());
}

TEST(Location, PutsPlannedFaultsInFront) {
  const StorageLocation location = resolve_location("faulty+file:/absent/x?fail=stat:2:EIO&cut=stat:3");
  EXPECT_EQ(location.path, "/absent/x");
  EXPECT_FALSE(location.storage->stat(location.path));
  EXPECT_EQ(error_of([&] { location.storage->stat(location.path); }).error_number(), EIO);
  EXPECT_THROW(location.storage->stat(location.path), PowerCut);
  EXPECT_EQ(resolve_location("faulty+file:///a").path, "/a");
  EXPECT_EQ(resolve_location("faulty+file:a?").path, "a");
  EXPECT_THROW(resolve_location("faulty+file:a?fail=x"), ValueError);
  EXPECT_THROW(resolve_location("faulty+file:?fail=stat:1:EIO"), ValueError);
}

TEST(Location, RefusesRemoteSchemesWithWhatToDo) {
  for (const std::string scheme : {"s3", "gs", "hdfs", "abfs", "S3"}) {
    const Error error = error_of([&] { resolve_location(scheme + "://bucket/key"); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("remote scheme"));
    EXPECT_THAT(error.what(), HasSubstr("copy it to a local folder"));
  }
  EXPECT_EQ(error_of([] { resolve_location("s3:bucket/key"); }).code(), ErrorCode::kUnsupported);
}

TEST(Location, RefusesUnknownSchemesAndHosts) {
  const Error unknown = error_of([] { resolve_location("ftp://host/file"); });
  EXPECT_EQ(unknown.code(), ErrorCode::kUnsupported);
  EXPECT_STREQ(unknown.what(),
               "ftp://host/file: unknown scheme 'ftp' is not supported; give a path or file:PATH");
  EXPECT_EQ(error_of([] { resolve_location("file://host/a"); }).code(), ErrorCode::kBadArgument);
  EXPECT_EQ(error_of([] { resolve_location("file://"); }).code(), ErrorCode::kBadArgument);
}

TEST(Location, RefusesEmptyPathsAndNulBytes) {
  EXPECT_EQ(error_of([] { resolve_location(""); }).code(), ErrorCode::kBadArgument);
  EXPECT_EQ(error_of([] { resolve_location("file:"); }).code(), ErrorCode::kBadArgument);
  EXPECT_EQ(error_of([] { resolve_location(std::string_view("a\0b", 3)); }).code(), ErrorCode::kBadArgument);
}

TEST(Paths, JoinWithExactlyOneSlash) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a//", "/b"), "a/b");
  EXPECT_EQ(join_path("/", "b"), "/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a/b", "c/d"), "a/b/c/d");
}

TEST(Paths, SplitIntoParentAndName) {
  const auto split = [](std::string_view path) { return parent_path(path) + " | " + base_name(path); };
  EXPECT_EQ(split("a"), ". | a");
  EXPECT_EQ(split("a/"), ". | a");
  EXPECT_EQ(split("a/b//"), "a | b");
  EXPECT_EQ(split("a//b"), "a | b");
  EXPECT_EQ(split("/a"), "/ | a");
  EXPECT_EQ(split("//a/b"), "//a | b");
  EXPECT_EQ(split("/"), "/ | ");
  EXPECT_EQ(split(""), ". | ");
  EXPECT_EQ(split("../x"), ".. | x");
}

TEST(Paths, AreWithinAFolderHoweverTheyAreSpelt) {
  EXPECT_TRUE(lies_within("/a/b/c", "/a/b"));
  EXPECT_TRUE(lies_within("/a/b/", "/a/b"));
  EXPECT_TRUE(lies_within("./src/out", "src"));
  EXPECT_TRUE(lies_within("src/../src/out", "src/"));
  EXPECT_FALSE(lies_within("/a/bc", "/a/b"));
  EXPECT_FALSE(lies_within("/a", "/a/b"));
  EXPECT_FALSE(lies_within("src/../out", "src"));
}

}  // namespace
}  // namespace milepost
