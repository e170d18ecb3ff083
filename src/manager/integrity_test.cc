#include "milepost/manager/integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/test_steps.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/storage/faulty.h"

namespace milepost::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ManagerIntegrity : public ::testing::Test {
 protected:
  ManagerIntegrity() { where_.storage->make_directory(where_.path); }

  void write(std::string_view name, std::string_view content) const {
    const auto file = where_.storage->open_write(join_path(where_.path, name), {.direct = false});
    const Bytes bytes = as_bytes(content);
    if (!content.empty()) file->write_at(0, {&bytes, 1});
    file->close();
  }
  Integrity of_ranks(int64_t num_ranks) const {
    std::vector<std::string> findings;
    for (int64_t rank = 0; rank < num_ranks; ++rank) findings.push_back(inspect(where_, rank, num_ranks));
    return judge(where_.path, findings);
  }

  const StorageLocation where_{memory_storage(), "/step-5"};
};

TEST_F(ManagerIntegrity, AFolderWithoutManifestIsGoodUnlessOneIsRequired) {
  write("a", "1");
  for (int64_t num_ranks : {1, 2}) {
    const Integrity all = of_ranks(num_ranks);
    EXPECT_TRUE(all.is_good(false));
    EXPECT_FALSE(all.is_good(true));
    EXPECT_THAT(refusal(where_.path, all).what(), HasSubstr("require_manifest"));
  }
}

TEST_F(ManagerIntegrity, AllRanksKnowWhatOneFound) {
  for (const char* name : {"a", "b", "c"}) write(name, name);
  write_manifest(where_, {});
  EXPECT_TRUE(of_ranks(2).is_good(true));
  EXPECT_EQ(of_ranks(2).files, 3);
  EXPECT_EQ(of_ranks(2).bytes, 3);
  write("b", "x");
  write("new", "");
  where_.storage->remove_file("/step-5/c");
  const Integrity one = of_ranks(1), two = of_ranks(2);
  EXPECT_FALSE(one.is_good(false));
  EXPECT_THAT(one.fault, HasSubstr("Checkpoint hash manifest verification failed for /step-5:\n"
                                   "  b: hash mismatch (expected "));
  EXPECT_THAT(one.fault, HasSubstr("\n  c: the file is missing"));
  EXPECT_THAT(one.fault, Not(HasSubstr("rank")));
  EXPECT_THAT(two.fault, HasSubstr("), found by rank 1"));
  EXPECT_THAT(two.unlisted, ElementsAre("new"));
  EXPECT_EQ(refusal(where_.path, two).code(), ErrorCode::kBadManifest);
}

TEST_F(ManagerIntegrity, AnUnfinishedOrUnreadableManifestIsAFault) {
  mark_pending(*where_.storage, where_.path);
  EXPECT_THAT(of_ranks(2).fault, HasSubstr("Checkpoint hash manifest is incomplete"));
  write(manifest::kManifestName, "{}");
  where_.storage->remove_file("/step-5/_checkpoint_hash_manifest.pending");
  EXPECT_FALSE(of_ranks(2).is_good(false));
}

TEST_F(ManagerIntegrity, RefusesFindingsThatAreNone) {
  EXPECT_THROW(judge("/a", {"p"}), FormatError);
  EXPECT_THROW(judge("/a", {std::string("x\0", 2)}), FormatError);
  EXPECT_THROW(judge("/a", {std::string("h1 2x\0", 6)}), FormatError);
  EXPECT_THROW(judge("/a", {std::string("h1\0", 3)}), FormatError);
  EXPECT_THROW(judge("/a", {std::string("l1\0", 3)}), FormatError);
}

// Whose listings differ have cut different shares: a file may be nobody's.
TEST_F(ManagerIntegrity, RanksThatSeeOtherFilesAreAFault) {
  for (const char* name : {"a", "b", "c"}) write(name, name);
  write_manifest(where_, {});
  const std::string first = inspect(where_, 0, 2), second = inspect(where_, 1, 2);
  EXPECT_TRUE(judge("/a", {first, second}).is_good(true));
  write("c", "longer");
  const std::string longer = inspect(where_, 1, 2);
  where_.storage->remove_file("/step-5/c");
  const std::string fewer = inspect(where_, 1, 2);
  where_.storage->remove_file("/step-5/_checkpoint_hash_manifest.json");
  const std::string none = inspect(where_, 1, 2);
  const std::pair<std::string, const char*> others[] = {{longer, "rank 0 sees 3 listed files of 3 bytes"},
                                                        {fewer, "rank 1 2 listed files of 2 bytes"},
                                                        {none, "rank 1 no manifest"}};
  for (const auto& [other, words] : others) {
    const Integrity all = judge("/a", {first, other});
    EXPECT_FALSE(all.is_good(false));
    EXPECT_THAT(all.fault, HasSubstr(words));
    EXPECT_TRUE(all.ranks_disagree && !all.is_damaged);
  }
  EXPECT_THAT(judge("/a", {none, second}).fault, HasSubstr("rank 0 sees no manifest"));
  // Two that both took the first share.
  EXPECT_THAT(judge("/a", {first, first}).fault, HasSubstr("of 3 files were hashed"));
}

TEST_F(ManagerIntegrity, AFileThatTheDiskDoesNotGiveBackIsDamage) {
  for (const char* name : {"a", "b"}) write(name, name);
  write_manifest(where_, {});
  const auto through = [&](const char* faults) {
    const StorageLocation faulty{faulty_storage(where_.storage, parse_faults(faults)), where_.path};
    return judge(where_.path, {inspect(faulty, 0, 1)});
  };
  EXPECT_TRUE(through("").is_good(true));
  EXPECT_THAT(through("fail=open:1:EIO").fault, HasSubstr(manifest::kManifestName));
  const std::string fault = through("fail=open:2:EIO&fail=open:3:EIO").fault;
  EXPECT_THAT(fault, HasSubstr("\n  a: cannot be read ("));
  EXPECT_THAT(fault, HasSubstr("\n  b: cannot be read ("));
  EXPECT_THROW(through("fail=open:2:EACCES"), StorageError);
}

TEST(ManagerIntegrityOfSteps, WhereAManifestIsRequiredItListsWhatTheCheckpointConsistsOf) {
  TestSteps steps;
  steps.add_full(5);
  const StorageLocation step{steps.where.storage, "/run/step-5"};
  const manifest::Hashes all = write_manifest(step, {});
  const auto check_without = [&](std::string_view name) {
    manifest::Hashes fewer = all;
    std::erase_if(fewer, [&](const auto& entry) { return entry.first == name; });
    steps.write("step-5/" + std::string(manifest::kManifestName), manifest::write(fewer));
    return judge(step.path, {inspect(step, 0, 2), inspect(step, 1, 2)});
  };
  steps.write("step-5/README", "later");
  EXPECT_TRUE(check_without("").is_good(true));
  EXPECT_THAT(check_without("").unlisted, ElementsAre("README"));
  for (const char* name : {".metadata", "__0_0.distcp"}) {
    const Integrity found = check_without(name);
    EXPECT_TRUE(found.is_good(false)) << name;
    EXPECT_FALSE(found.is_good(true)) << name;
    EXPECT_THAT(found.unsure, ElementsAre(name));
    EXPECT_THAT(refusal(step.path, found).what(), HasSubstr("does not list " + std::string(name)));
    EXPECT_EQ(brief(found), "its hash manifest does not list all its files");
  }
}

}  // namespace
}  // namespace milepost::manager
