#include "milepost/storage/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "milepost/storage/faulty.h"
#include "storage/test_folders.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using Kind = StagedOutput::Kind;

// All below "/", staging folders included.
Content all(Storage& storage) { return *read_content(storage, "/"); }

class Staging : public testing::Test {
 protected:
  const std::shared_ptr<Storage> storage_ = memory_storage();
};

TEST_F(Staging, PublishesAFolderAndLeavesNothingElse) {
  StagedOutput output(storage_, "/out", Kind::kDirectory, false);
  make_folder(*storage_, output.path(), kNew);
  EXPECT_FALSE(storage_->stat("/out"));
  output.commit();
  EXPECT_EQ(all(*storage_), below("out", kNew));
}

TEST_F(Staging, PublishesAFile) {
  StagedOutput output(storage_, "/model.pth", Kind::kFile, false);
  EXPECT_FALSE(storage_->stat(output.path()));
  write_file(*storage_, output.path(), "new");
  output.commit();
  EXPECT_EQ(all(*storage_), (Content{{"model.pth", "new"}}));
}

TEST_F(Staging, WritesBesideTheFinalNameWithoutTheWordStep) {
  storage_->make_directory("/checkpoints");
  StagedOutput output(storage_, "/checkpoints/step-100", Kind::kDirectory, false);
  EXPECT_THAT(output.path(), MatchesRegex("/checkpoints/\\.milepost-staging-[0-9a-f]{16}/data"));
  EXPECT_THAT(output.path(), Not(HasSubstr("step-")));
}

class StagingLeftovers : public Staging {
 protected:
  // Dies, or is abandoned, with a file written and a journal.
  void leave(bool keep, Kind kind = Kind::kDirectory) {
    StagedOutput output(storage_, "/out", kind, true);
    write_file(*storage_, kind == Kind::kFile ? output.path() : join_path(output.path(), "a"), "A");
    write_file(*storage_, output.journal_path(), "journal");
    output.keep_when_abandoned(keep);
  }
  std::unique_ptr<StagedOutput> next(StagedOutput::Leftovers leftovers, Kind kind = Kind::kDirectory,
                                     bool overwrite = true) {
    return std::make_unique<StagedOutput>(storage_, "/out", kind, overwrite, leftovers);
  }
  bool has_journal(const StagedOutput& output) { return storage_->stat(output.journal_path()).has_value(); }
  static constexpr auto kKeep = StagedOutput::Leftovers::kKeep, kRemove = StagedOutput::Leftovers::kRemove;
};

TEST_F(StagingLeftovers, StayOnlyWhenThatWasAskedFor) {
  leave(false);
  EXPECT_EQ(all(*storage_), Content{});
  leave(true);
  EXPECT_EQ(all(*storage_).size(), 4U);  // two folders, the file, the journal; no lock
}

TEST_F(StagingLeftovers, AreContinuedAndPublishedWithoutTheJournal) {
  for (const bool has_exchange : {true, false}) {
    leave(true);
    std::vector<Fault> faults;
    for (int64_t call = 1; !has_exchange && call < 10; ++call) faults.push_back({"exchange", call, ENOSYS});
    StagedOutput output(faulty_storage(storage_, faults), "/out", Kind::kDirectory, true, kKeep);
    EXPECT_EQ(read_file(*storage_, output.journal_path()), "journal");
    EXPECT_EQ(read_file(*storage_, join_path(output.path(), "a")), "A");
    write_file(*storage_, join_path(output.path(), ".metadata"), "new");
    output.commit();
    EXPECT_EQ(all(*storage_), below("out", {{"a", "A"}, {".metadata", "new"}}));
    storage_->remove_file("/out/a");
    write_file(*storage_, "/out/.metadata", "old");
  }
}

TEST_F(StagingLeftovers, StayWhenTheNextOneIsAbandonedTooUnlessItSaysOtherwise) {
  leave(true);
  next(kKeep).reset();
  EXPECT_TRUE(has_journal(*next(kKeep)));
  next(kKeep)->keep_when_abandoned(false);
  EXPECT_EQ(all(*storage_), Content{});
}

TEST_F(StagingLeftovers, AreRemovedByOneThatDoesNotWantThem) {
  leave(true);
  const auto output = next(kRemove);
  EXPECT_FALSE(has_journal(*output));
  EXPECT_TRUE(storage_->list(output->path()).empty());
}

TEST_F(StagingLeftovers, CanBeDiscarded) {
  for (const Kind kind : {Kind::kDirectory, Kind::kFile}) {
    leave(true, kind);
    const auto output = next(kKeep, kind);
    output->discard_leftovers();
    EXPECT_FALSE(has_journal(*output));
    EXPECT_EQ(storage_->stat(output->path()).has_value(), kind == Kind::kDirectory);
  }
}

TEST_F(StagingLeftovers, OfAnotherKindOrWithoutAJournalOrDataAreRemoved) {
  leave(true, Kind::kFile);
  EXPECT_FALSE(has_journal(*next(kKeep, Kind::kDirectory)));
  EXPECT_EQ(all(*storage_), Content{});
  leave(true, Kind::kDirectory);
  EXPECT_FALSE(has_journal(*next(kKeep, Kind::kFile)));
  EXPECT_EQ(all(*storage_), Content{});
  {
    const auto output = next(kRemove);
    write_file(*storage_, join_path(output->path(), "a"), "A");
    output->keep_when_abandoned(true);
  }
  EXPECT_EQ(all(*storage_), Content{});
}

TEST_F(StagingLeftovers, SurviveARefusedFinalName) {
  leave(true);
  make_folder(*storage_, "/out", kOld);
  EXPECT_EQ(error_of([&] { next(kKeep, Kind::kDirectory, false); }).code(), ErrorCode::kExists);
  EXPECT_TRUE(has_journal(*next(kKeep)));
  storage_->remove_tree("/out");
  const auto output = next(kKeep, Kind::kDirectory, false);
  make_folder(*storage_, "/out", kOld);
  EXPECT_EQ(error_of([&] { output->commit(); }).code(), ErrorCode::kExists);
  EXPECT_TRUE(has_journal(*next(kKeep)));
}

TEST_F(Staging, ReplacesAFolderByExchange) {
  make_folder(*storage_, "/out", kOld);
  StagedOutput output(storage_, "/out", Kind::kDirectory, true);
  make_folder(*storage_, output.path(), kNew);
  output.commit();
  EXPECT_EQ(all(*storage_), below("out", kNew));
}

TEST_F(Staging, ReplacesAFolderWhereThereIsNoExchange) {
  make_folder(*storage_, "/out", kOld);
  StagedOutput output(faulty_storage(storage_, parse_faults("fail=exchange:1:ENOSYS")), "/out",
                      Kind::kDirectory, true);
  make_folder(*storage_, output.path(), kNew);
  output.commit();
  EXPECT_EQ(all(*storage_), below("out", kNew));
}

TEST_F(Staging, ReplacesFilesByFoldersAndTheOtherWayRound) {
  write_file(*storage_, "/out", "PK\3\4 old");
  {
    StagedOutput output(storage_, "/out", Kind::kDirectory, true);
    make_folder(*storage_, output.path(), kNew);
    output.commit();
  }
  EXPECT_EQ(all(*storage_), below("out", kNew));
  {
    StagedOutput output(storage_, "/out", Kind::kFile, true);
    write_file(*storage_, output.path(), "PK\3\4 file");
    output.commit();
  }
  EXPECT_EQ(all(*storage_), (Content{{"out", "PK\3\4 file"}}));
  {
    StagedOutput output(storage_, "/out", Kind::kFile, true);
    write_file(*storage_, output.path(), "other");
    output.commit();
  }
  EXPECT_EQ(all(*storage_), (Content{{"out", "other"}}));
}

TEST_F(Staging, WithoutCommitNothingHasHappened) {
  make_folder(*storage_, "/out", kOld);
  {
    StagedOutput output(storage_, "/out", Kind::kDirectory, true);
    make_folder(*storage_, output.path(), kNew);
  }
  EXPECT_EQ(all(*storage_), below("out", kOld));
}

TEST_F(Staging, RefusesWhatExistsUnlessAskedTo) {
  make_folder(*storage_, "/out", {});
  const Error error = error_of([&] { StagedOutput(storage_, "/out", Kind::kDirectory, false); });
  EXPECT_EQ(error.code(), ErrorCode::kExists);
  EXPECT_STREQ(error.what(), "/out: it exists already; choose another name, or ask to overwrite it");
  EXPECT_EQ(all(*storage_), (Content{{"out/", ""}}));
}

TEST_F(Staging, RefusesWhatAppearedMeanwhile) {
  StagedOutput folder(storage_, "/folder", Kind::kDirectory, false);
  StagedOutput file(storage_, "/file", Kind::kFile, false);
  write_file(*storage_, file.path(), "new");
  make_folder(*storage_, "/folder", kOld);
  write_file(*storage_, "/file", "old");
  EXPECT_EQ(error_of([&] { folder.commit(); }).code(), ErrorCode::kExists);
  EXPECT_EQ(error_of([&] { file.commit(); }).code(), ErrorCode::kExists);
  Content expected = below("folder", kOld);
  expected["file"] = "old";
  EXPECT_EQ(all(*storage_), expected);
}

TEST_F(Staging, RefusesToReplaceAFolderThatIsNoCheckpoint) {
  make_folder(*storage_, "/home", {{"config.json", ""}, {"thesis.tex", "years of work"}});
  for (const Kind kind : {Kind::kDirectory, Kind::kFile}) {
    const Error error = error_of([&] { StagedOutput(storage_, "/home", kind, true); });
    EXPECT_EQ(error.code(), ErrorCode::kExists);
    EXPECT_THAT(error.what(), HasSubstr("/home: not overwritten: the folder holds 'thesis.tex'"));
  }
  EXPECT_EQ(all(*storage_), below("home", {{"config.json", ""}, {"thesis.tex", "years of work"}}));
}

TEST_F(Staging, RefusesToReplaceAFileThatIsNoCheckpoint) {
  write_file(*storage_, "/thesis", "years of work");
  for (const Kind kind : {Kind::kDirectory, Kind::kFile}) {
    const Error error = error_of([&] { StagedOutput(storage_, "/thesis", kind, true); });
    EXPECT_EQ(error.code(), ErrorCode::kExists);
    EXPECT_THAT(error.what(), HasSubstr("/thesis: not overwritten: the file is no checkpoint"));
  }
  EXPECT_EQ(all(*storage_), (Content{{"thesis", "years of work"}}));
}

TEST_F(Staging, LooksAgainBeforeItReplacesAFolder) {
  make_folder(*storage_, "/out", kOld);
  StagedOutput output(storage_, "/out", Kind::kDirectory, true);
  write_file(*storage_, "/out/thesis.tex", "years of work");
  EXPECT_THAT(error_of([&] { output.commit(); }).what(), HasSubstr("'thesis.tex'"));
  EXPECT_EQ(read_file(*storage_, "/out/thesis.tex"), "years of work");
}

TEST_F(Staging, RefusesNamesThatAreNone) {
  for (const char* path : {"/", "", ".", "..", "a/..", "/./", "a/."}) {
    EXPECT_EQ(error_of([&] { StagedOutput(storage_, path, Kind::kDirectory, false); }).code(),
              ErrorCode::kBadArgument)
        << path;
  }
}

TEST_F(Staging, NeedsTheParentFolder) {
  EXPECT_EQ(error_of([&] { StagedOutput(storage_, "/absent/out", Kind::kFile, false); }).code(),
            ErrorCode::kNotFound);
}

TEST_F(Staging, IgnoresTrailingSlashes) {
  StagedOutput output(storage_, "/out//", Kind::kDirectory, false);
  EXPECT_EQ(error_of([&] { StagedOutput(storage_, "/out", Kind::kDirectory, false); }).code(),
            ErrorCode::kLocked);
  output.commit();
  EXPECT_EQ(all(*storage_), (Content{{"out/", ""}}));
}

TEST_F(Staging, OneAtATimeAtOneNameAnyNumberAtOthers) {
  StagedOutput first(storage_, "/out", Kind::kDirectory, false);
  make_folder(*storage_, first.path(), kNew);
  const Error error = error_of([&] { StagedOutput(storage_, "/out", Kind::kDirectory, true); });
  EXPECT_EQ(error.code(), ErrorCode::kLocked);
  EXPECT_EQ(error.path(), "/out");
  EXPECT_THAT(error.what(), HasSubstr("another process is writing here; wait until it is done or stop it"));
  StagedOutput other(storage_, "/out2", Kind::kDirectory, false);
  first.commit();
  StagedOutput second(storage_, "/out", Kind::kDirectory, true);
}

std::string staging_folder_of(const std::string& final_path) {
  return parent_path(StagedOutput(memory_storage(), final_path, Kind::kFile, false).path());
}

TEST_F(Staging, RemovesTheDebrisOfADeadProcess) {
  const std::string debris = staging_folder_of("/out");
  make_folder(*storage_, debris, {{"lock", ""}, {"data/", ""}, {"data/__0_0.distcp", "half"}, {"stray", ""}});
  StagedOutput output(storage_, "/out", Kind::kDirectory, false);
  EXPECT_EQ(all(*storage_), below(base_name(debris), {{"lock", ""}, {"data/", ""}}));
}

TEST_F(Staging, MovesTheOldOutputBackThatADeadProcessHadMovedAside) {
  const std::string debris = staging_folder_of("/out");
  make_folder(*storage_, debris, {{"lock", ""}, {"data/", ""}, {"data/half", "half"}});
  make_folder(*storage_, join_path(debris, "old-out"), kOld);
  EXPECT_EQ(error_of([&] { StagedOutput(storage_, "/out", Kind::kDirectory, false); }).code(),
            ErrorCode::kExists);
  EXPECT_EQ(all(*storage_), below("out", kOld));
}

TEST_F(Staging, RemovesTheOldOutputWhereTheNewOneHadTakenItsPlace) {
  const std::string debris = staging_folder_of("/out");
  make_folder(*storage_, debris, {{"lock", ""}});
  make_folder(*storage_, join_path(debris, "old-out"), kOld);
  make_folder(*storage_, "/out", kNew);
  { StagedOutput output(storage_, "/out", Kind::kDirectory, true); }
  EXPECT_EQ(all(*storage_), below("out", kNew));
}

TEST_F(Staging, KeepsTheOldOutputThatCouldNotBeMovedBack) {
  make_folder(*storage_, "/out", kOld);
  const auto faulty =
      faulty_storage(storage_, parse_faults("fail=exchange:1:ENOSYS&fail=rename:2:EIO&fail=rename:3:EIO"));
  {
    StagedOutput output(faulty, "/out", Kind::kDirectory, true);
    make_folder(*storage_, output.path(), kNew);
    EXPECT_EQ(error_of([&] { output.commit(); }).error_number(), EIO);
  }
  EXPECT_FALSE(storage_->stat("/out"));
  { StagedOutput next(storage_, "/out", Kind::kDirectory, true); }
  EXPECT_EQ(all(*storage_), below("out", kOld));
}

TEST_F(Staging, SyncsAllFoldersBeforeAndTheParentAfterThePublication) {
  const auto faulty = faulty_storage(storage_, {});
  StagedOutput output(faulty, "/out", Kind::kDirectory, false);
  make_folder(*storage_, output.path(), kNew);
  const int64_t before = faulty->calls("syncdir");
  output.commit();
  EXPECT_GE(faulty->calls("syncdir") - before, 3);
}

class Removal : public Staging {
 protected:
  std::optional<std::string> remove() { return StagedOutput::remove(storage_, "/step-1"); }
};

TEST_F(Removal, LeavesNothing) {
  make_folder(*storage_, "/step-1", kOld);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(remove(), std::nullopt);
    EXPECT_EQ(all(*storage_), Content{});
  }
}

TEST_F(Removal, IsRefusedWhereAStrangerIsInTheFolder) {
  make_folder(*storage_, "/step-1", kOld);
  storage_->make_directory("/step-1/mine");
  const Content before = all(*storage_);
  EXPECT_EQ(remove(), "mine");
  EXPECT_EQ(all(*storage_), before);
}

TEST_F(Removal, OfWhatCannotBeLookedAtPutsItBack) {
  make_folder(*storage_, "/step-1", kOld);
  // Of two lists the first is of the staging folder.
  const auto faulty = faulty_storage(storage_, parse_faults("fail=list:2:EIO"));
  EXPECT_EQ(error_of([&] { StagedOutput::remove(faulty, "/step-1"); }).error_number(), EIO);
  EXPECT_EQ(all(*storage_), below("step-1", kOld));
}

TEST_F(Staging, OfDeadProcessesIsPutRightWhateverTheName) {
  make_folder(*storage_, "/.milepost-staging-0123", {{"removed/", ""}, {"removed/.metadata", "x"}});
  make_folder(*storage_, "/.milepost-staging-4567", {{"data/", ""}, {"data/__0_0.distcp", "x"}});
  const std::pair<const char*, const char*> moved[] = {
      {"/step-3", "old-step-3"}, {"/step-4", "old-step-4"}, {"/step-5", "old-step-6"}};
  for (const auto& [final_path, name] : moved) {
    const std::string folder = staging_folder_of(final_path);
    make_folder(*storage_, folder, {{"lock", ""}, {"data/", ""}});
    make_folder(*storage_, join_path(folder, name), kOld);
  }
  make_folder(*storage_, "/step-4", kNew);  // took the place of the old one; the last was never here
  const StagedOutput alive(storage_, "/step-2", Kind::kDirectory, false);
  const StaleStaging done = settle_stale_staging(storage_, "/");
  EXPECT_EQ(done.num_removed, 5);
  EXPECT_EQ(done.put_back, std::vector<std::string>{"/step-3"});
  Content expected = below("step-3", kOld);
  expected.merge(below("step-4", kNew));
  expected.merge(below(base_name(parent_path(alive.path())), {{"lock", ""}, {"data/", ""}}));
  EXPECT_EQ(all(*storage_), expected);
}

}  // namespace
}  // namespace milepost
