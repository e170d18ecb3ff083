#include "milepost/manager/integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/engine/manifest_files.h"

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
}

}  // namespace
}  // namespace milepost::manager
