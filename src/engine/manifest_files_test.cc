#include "milepost/engine/manifest_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/test_checkpoints.h"
#include "milepost/base/error.h"
#include "milepost/storage/faulty.h"

namespace milepost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ManifestOptions threads(int count) {
  ManifestOptions options;
  options.num_threads = count;
  return options;
}

std::string bytes_of(size_t size, unsigned seed) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return text;
}

TEST(ManifestFiles, HashesEveryFileButItsOwn) {
  const TestCheckpoint folder;
  folder.write("b.bin", "abc");
  folder.write(".metadata", "");
  folder.write(manifest::kManifestName, "old");
  folder.write(manifest::kPendingName, "pending\n");
  folder.where.storage->make_directory(folder.path("sharded"));
  EXPECT_THAT(
      hash_folder(folder.where, {}),
      ElementsAre(std::pair<std::string, std::string>(
                      ".metadata", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
                  std::pair<std::string, std::string>(
                      "b.bin", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")));
}

// Sizes around blocks, more and fewer files than streams, on any number of threads.
TEST(ManifestFiles, AgreesWithOneFileAtATime) {
  for (size_t count : {1, 2, 3, 5, 9}) {
    const TestCheckpoint folder;
    manifest::Hashes expected;
    for (size_t i = 0; i < count; ++i) {
      const std::string name = "file" + std::to_string(i);
      const std::string content =
          bytes_of(i * ((128 << 10) + 61) % 1'000'003 + (i == 4 ? 0 : i), static_cast<unsigned>(i));
      folder.write(name, content);
      expected.emplace_back(name, to_hex(sha256(as_bytes(content))));
    }
    for (int num_threads : {1, 2, 8}) EXPECT_EQ(hash_folder(folder.where, threads(num_threads)), expected);
  }
}

TEST(ManifestFiles, WritesThenChecksThenFindsDamage) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  folder.write(manifest::kPendingName, "pending\n");
  EXPECT_THROW(check_manifest(folder.where, {}), CheckpointManifestError);
  const manifest::Hashes hashes = write_manifest(folder.where, {});
  EXPECT_FALSE(folder.where.storage->stat(folder.path(manifest::kPendingName)));
  EXPECT_EQ(folder.read(manifest::kManifestName), manifest::write(hashes));
  EXPECT_TRUE(check_manifest(folder.where, {}).good());

  folder.flip("__0_0.distcp", 100);
  folder.remove("__1_0.distcp");
  folder.write("README", "later");
  const ManifestCheck check = check_manifest(folder.where, {});
  EXPECT_FALSE(check.good());
  EXPECT_THAT(check.mismatched, ElementsAre(HasSubstr("__0_0.distcp: hash mismatch (expected ")));
  EXPECT_THAT(check.missing, ElementsAre("__1_0.distcp"));
  EXPECT_THAT(check.extra, ElementsAre("README"));
}

// Every damage is found by one of those that check together, and every byte is hashed once.
TEST(ManifestFiles, SharesOfACheckMakeUpTheWhole) {
  const TestCheckpoint folder;
  for (int i = 0; i < 7; ++i) folder.write(std::to_string(i), bytes_of(static_cast<size_t>(1000 * i), 1));
  write_manifest(folder.where, {});
  folder.write("2", "other");
  folder.write("6", "other");
  folder.remove("4");
  const ManifestCheck whole = check_manifest(folder.where, {});
  for (int64_t num_shares : {1, 2, 3, 9}) {
    std::vector<std::string> mismatched;
    int64_t files = 0, bytes = 0;
    for (int64_t share = 0; share < num_shares; ++share) {
      ManifestOptions options;
      options.share = share;
      options.num_shares = num_shares;
      const ManifestCheck part = check_manifest(folder.where, options);
      mismatched.insert(mismatched.end(), part.mismatched.begin(), part.mismatched.end());
      EXPECT_EQ(part.missing, whole.missing);
      EXPECT_EQ(part.listing.digest, whole.listing.digest);
      EXPECT_EQ(part.listing.bytes, whole.bytes);
      EXPECT_LE(part.bytes, num_shares == 2 ? 5500 : whole.bytes);
      files += part.files;
      bytes += part.bytes;
    }
    EXPECT_THAT(mismatched, ::testing::UnorderedElementsAreArray(whole.mismatched));
    EXPECT_EQ(files, whole.files);
    EXPECT_EQ(bytes, whole.bytes);
  }
}

TEST(ManifestFiles, WritesTheSameTwice) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  write_manifest(folder.where, {});
  const std::string first = folder.read(manifest::kManifestName);
  folder.write(std::string(manifest::kManifestName) + ".tmp", "left by a run that was killed");
  write_manifest(folder.where, {});
  EXPECT_EQ(folder.read(manifest::kManifestName), first);
}

TEST(ManifestFiles, SaysWhenThereIsNothingToCheck) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  EXPECT_FALSE(check_manifest(folder.where, {}).present);
  EXPECT_THROW(check_manifest({folder.where.storage, "/absent"}, {}), StorageError);
  EXPECT_THROW(check_manifest({folder.where.storage, folder.path(".metadata")}, {}), ValueError);
}

TEST(ManifestFiles, RefusesADamagedManifest) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  folder.write(manifest::kManifestName, "{}");
  EXPECT_THROW(check_manifest(folder.where, {}), CheckpointManifestError);
}

TEST(ManifestFiles, NamesTheFirstUnreadableFileWhateverTheThreads) {
  const TestCheckpoint folder("dcp/fsdp_4rank/ckpt");
  for (int num_threads : {1, 4}) {
    const auto faulty = faulty_storage(
        folder.where.storage,
        parse_faults("fail=open:1:EIO&fail=open:2:EIO&fail=open:3:EIO&fail=open:4:EIO&fail=open:5:EIO"));
    try {
      hash_folder({faulty, folder.where.path}, threads(num_threads));
      FAIL();
    } catch (const StorageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(".metadata"));
    }
  }
}

TEST(ManifestFiles, AFileThatTheDiskDoesNotGiveBackIsDamage) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  write_manifest(folder.where, {});
  const auto check_with = [&](const char* faults) {
    return check_manifest({faulty_storage(folder.where.storage, parse_faults(faults)), folder.where.path},
                          threads(1));
  };
  EXPECT_TRUE(check_with("").good());
  const ManifestCheck check = check_with("fail=open:3:EIO");  // after the manifest and the largest file
  ASSERT_EQ(check.mismatched.size(), 1u);
  EXPECT_THAT(check.mismatched[0], HasSubstr(": cannot be read (Input/output error)"));
  EXPECT_EQ(check.files, check.listing.files);
  EXPECT_THROW(check_with("fail=open:3:EMFILE"), StorageError);
  EXPECT_THROW(check_with("fail=open:1:EIO"), CheckpointManifestError);
}

TEST(ManifestFiles, LeavesTheOldManifestWhenWritingFails) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  write_manifest(folder.where, {});
  const std::string first = folder.read(manifest::kManifestName);
  folder.write("more", "data");
  for (const char* fault : {"fail=write:1:ENOSPC", "fail=sync:1:EIO", "fail=rename:1:EIO"}) {
    const auto faulty = faulty_storage(folder.where.storage, parse_faults(fault));
    EXPECT_THROW(write_manifest({faulty, folder.where.path}, {}), StorageError);
    EXPECT_EQ(folder.read(manifest::kManifestName), first) << fault;
  }
}

}  // namespace
}  // namespace milepost
