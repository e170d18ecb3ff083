#include "milepost/storage/simulated_disk.h"

#include <gtest/gtest.h>

#include <set>

#include "storage/test_files.h"

namespace milepost {
namespace {

using Survival = SimulatedDisk::Survival;
using Content = std::map<std::string, std::string>;

void write_unsynced(Storage& storage, const std::string& path, std::string_view text) {
  const Bytes part = as_bytes(text);
  storage.open_write(path, {})->write_at(0, {&part, 1});
}

Content content_after(const SimulatedDisk& disk, Survival survival, uint64_t seed = 0) {
  return *read_content(*disk.after_power_cut(survival, seed), "/");
}

TEST(SimulatedDisk, DropsContentThatWasNotSynced) {
  const auto disk = simulated_disk();
  write_unsynced(*disk, "/unsynced", "text");
  write_file(*disk, "/synced", "text");
  disk->sync_directory("/");
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced), (Content{{"unsynced", ""}, {"synced", "text"}}));
  EXPECT_EQ(content_after(*disk, Survival::kKeepAll), (Content{{"unsynced", "text"}, {"synced", "text"}}));
}

TEST(SimulatedDisk, DropsNamesWhoseFolderWasNotSynced) {
  const auto disk = simulated_disk();
  write_file(*disk, "/old", "old");
  disk->make_directory("/folder");
  disk->sync_directory("/");
  write_file(*disk, "/new", "new");
  write_file(*disk, "/folder/inner", "inner");
  disk->remove_file("/old");
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced), (Content{{"old", "old"}, {"folder/", ""}}));
  disk->sync_directory("/folder");
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced),
            (Content{{"old", "old"}, {"folder/", ""}, {"folder/inner", "inner"}}));
  disk->sync_directory("/");
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced),
            (Content{{"new", "new"}, {"folder/", ""}, {"folder/inner", "inner"}}));
}

TEST(SimulatedDisk, EmptyingASyncedFileIsAnUnsyncedChange) {
  const auto disk = simulated_disk();
  write_file(*disk, "/file", "old");
  disk->sync_directory("/");
  disk->open_write("/file", {});
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced), (Content{{"file", "old"}}));
  EXPECT_EQ(content_after(*disk, Survival::kKeepAll), (Content{{"file", ""}}));
}

TEST(SimulatedDisk, ARenameOverTwoFoldersSurvivesWholeOrNotAtAll) {
  const auto disk = simulated_disk();
  for (const char* folder : {"/a", "/b"}) disk->make_directory(folder);
  write_file(*disk, "/a/file", "text");
  for (const char* folder : {"/", "/a", "/b"}) disk->sync_directory(folder);
  disk->rename("/a/file", "/b/file");
  const Content before{{"a/", ""}, {"b/", ""}, {"a/file", "text"}};
  const Content after{{"a/", ""}, {"b/", ""}, {"b/file", "text"}};
  std::set<Content> seen;
  for (uint64_t seed = 0; seed < 30; ++seed) seen.insert(content_after(*disk, Survival::kRandom, seed));
  EXPECT_EQ(seen, (std::set<Content>{before, after}));
  disk->sync_directory("/b");
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced), after);
}

TEST(SimulatedDisk, SyncingAFolderAlsoKeepsWhatCameBeforeInFoldersItSharesAChangeWith) {
  const auto disk = simulated_disk();
  for (const char* folder : {"/a", "/b"}) disk->make_directory(folder);
  disk->sync_directory("/");
  write_file(*disk, "/a/first", "1");
  disk->rename("/a/first", "/b/second");
  write_file(*disk, "/a/later", "3");
  disk->sync_directory("/b");
  EXPECT_EQ(content_after(*disk, Survival::kDropUnsynced),
            (Content{{"a/", ""}, {"b/", ""}, {"b/second", "1"}}));
}

TEST(SimulatedDisk, RandomSurvivalKeepsTheOrderOfOneFolder) {
  const auto disk = simulated_disk();
  write_file(*disk, "/file", "text");
  disk->sync_directory("/");
  disk->rename("/file", "/second");
  disk->rename("/second", "/third");
  std::set<Content> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) seen.insert(content_after(*disk, Survival::kRandom, seed));
  EXPECT_EQ(seen, (std::set<Content>{{{"file", "text"}}, {{"second", "text"}}, {{"third", "text"}}}));
}

TEST(SimulatedDisk, RandomSurvivalMixesPages) {
  const auto disk = simulated_disk();
  write_file(*disk, "/file", std::string(3 * 4096, 'o'));
  disk->sync_directory("/");
  const std::string text(3 * 4096, 'n');
  const Bytes part = as_bytes(text);
  write_unsynced(*disk, "/file", text);
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string found = content_after(*disk, Survival::kRandom, seed).at("file");
    ASSERT_EQ(found.size(), text.size());
    seen.insert({found[0], found[4096], found[8192]});
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(SimulatedDisk, TheSameSeedGivesTheSameDisk) {
  const auto disk = simulated_disk();
  for (int i = 0; i < 20; ++i) write_unsynced(*disk, "/" + std::to_string(i), "text");
  EXPECT_EQ(content_after(*disk, Survival::kRandom, 5), content_after(*disk, Survival::kRandom, 5));
}

TEST(SimulatedDisk, ACutFreesLocksAndLeavesTheOriginalAlone) {
  const auto disk = simulated_disk();
  const auto lock = disk->try_lock("/lock");
  const auto after = disk->after_power_cut(Survival::kKeepAll, 0);
  EXPECT_NE(after->try_lock("/lock"), nullptr);
  EXPECT_EQ(disk->try_lock("/lock"), nullptr);
  write_file(*after, "/file", "text");
  EXPECT_FALSE(disk->stat("/file"));
}

TEST(SimulatedDisk, WhatSurvivedACutIsOnTheDisk) {
  const auto disk = simulated_disk();
  write_unsynced(*disk, "/file", "text");
  const auto after = disk->after_power_cut(Survival::kKeepAll, 0);
  EXPECT_EQ(content_after(*after, Survival::kDropUnsynced), (Content{{"file", "text"}}));
}

}  // namespace
}  // namespace milepost
