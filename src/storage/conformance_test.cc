// What every Storage does alike: each test runs on all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "milepost/storage/faulty.h"
#include "milepost/storage/simulated_disk.h"
#include "milepost/storage/storage.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Backend {
  std::string name;
  std::shared_ptr<Storage> (*make)();
  bool is_posix = false;
  bool direct = false;
};

class StorageConformance : public testing::TestWithParam<Backend> {
 protected:
  StorageConformance() {
    if (GetParam().is_posix) temporary_.emplace();
    root_ = temporary_ ? temporary_->path() : "/root";
    storage_->make_directory(root_);
  }

  std::string at(std::string_view name) const { return join_path(root_, name); }
  WriteFileOptions options(int64_t expected_size = -1) const { return {expected_size, GetParam().direct}; }
  void write(const std::string& path, std::string_view text) { write_file(*storage_, path, text, options()); }
  std::string read(const std::string& path) { return read_file(*storage_, path); }
  std::vector<std::string> names(const std::string& path) {
    std::vector<std::string> found;
    for (const FileInfo& info : storage_->list(path)) found.push_back(info.name);
    return found;
  }

  std::shared_ptr<Storage> storage_ = GetParam().make();
  std::optional<TestFolder> temporary_;
  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(
    All, StorageConformance,
    testing::Values(Backend{"posix_direct", posix_storage, true, true},
                    Backend{"posix_buffered", posix_storage, true, false}, Backend{"memory", memory_storage},
                    Backend{"simulated_disk", []() -> std::shared_ptr<Storage> { return simulated_disk(); }},
                    Backend{
                        "faulty_without_faults",
                        []() -> std::shared_ptr<Storage> { return faulty_storage(memory_storage(), {}); }}),
    [](const auto& instance) { return instance.param.name; });

TEST_P(StorageConformance, ReadsBackWhatWasWrittenAtAnyLength) {
  for (const size_t length : {0, 1, 511, 4096, 4097, 100000}) {
    const std::string text = test_bytes(length, length);
    write(at("file"), text);
    EXPECT_EQ(read(at("file")), text) << length;
  }
}

TEST_P(StorageConformance, AlignmentIsAPowerOfTwoThatAnAlignedBufferHas) {
  const auto file = storage_->open_write(at("file"), options());
  EXPECT_GE(file->alignment(), 1);
  EXPECT_EQ(AlignedBuffer::kAlignment % file->alignment(), 0);
}

TEST_P(StorageConformance, WritesBlocksOutOfOrderFromSeveralThreads) {
  constexpr int64_t kBlock = 8192, kBlocks = 40, kTail = 100;
  const std::string text = test_bytes(kBlock * kBlocks, 7);
  const AlignedBuffer buffer(kBlock * kBlocks);
  std::memcpy(buffer.data(), text.data(), text.size());
  const int64_t size = kBlock * kBlocks - kTail;
  const auto file = storage_->open_write(at("file"), options(size));
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t block = kBlocks - 1 - thread; block >= 0; block -= 4) {
        const Bytes part(buffer.data() + block * kBlock, kBlock);
        file->write_at(block * kBlock, {&part, 1});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  file->truncate(size);
  file->sync();
  file->close();
  EXPECT_EQ(read(at("file")), text.substr(0, static_cast<size_t>(size)));
}

TEST_P(StorageConformance, WritesManyPartsOneAfterAnother) {
  constexpr size_t kParts = 2500, kLength = 4096;  // more than one system call takes
  const std::string text = test_bytes(kLength * 2, 3);
  const AlignedBuffer buffer(kLength * 2);
  std::memcpy(buffer.data(), text.data(), text.size());
  std::vector<Bytes> parts;
  std::string expected;
  for (size_t i = 0; i < kParts; ++i) {
    parts.emplace_back(buffer.data() + i % 2 * kLength, i % 7 == 0 ? 0 : kLength);
    if (i % 7 != 0) expected += text.substr(i % 2 * kLength, kLength);
  }
  const auto file = storage_->open_write(at("file"), options());
  file->write_at(0, parts);
  file->close();
  EXPECT_TRUE(read(at("file")) == expected);
}

TEST_P(StorageConformance, FillsGapsAndGrowthWithZeros) {
  const AlignedBuffer buffer(4096);
  std::memset(buffer.data(), 'x', 4096);
  const Bytes part(buffer.data(), 4096);
  const auto file = storage_->open_write(at("file"), options());
  file->write_at(8192, {&part, 1});
  file->truncate(16384);
  file->close();
  EXPECT_EQ(read(at("file")), std::string(8192, '\0') + std::string(4096, 'x') + std::string(4096, '\0'));
}

TEST_P(StorageConformance, OpeningForWritingEmptiesWhatIsThere) {
  write(at("file"), "a longer text");
  write(at("file"), "short");
  EXPECT_EQ(read(at("file")), "short");
  storage_->open_write(at("file"), options());
  EXPECT_EQ(read(at("file")), "");
}

TEST_P(StorageConformance, OpeningForWritingKeepsWhatIsThereWhenAsked) {
  const std::string old_text = test_bytes(3 * 4096 + 100, 1), new_text = test_bytes(4096, 2);
  write(at("file"), old_text);
  WriteFileOptions keep = options(static_cast<int64_t>(old_text.size()));
  keep.keep_content = true;
  const auto file = storage_->open_write(at("file"), keep);
  const AlignedBuffer buffer(4096);
  std::memcpy(buffer.data(), new_text.data(), new_text.size());
  const Bytes part(buffer.data(), 4096);
  file->write_at(4096, {&part, 1});
  file->truncate(static_cast<int64_t>(old_text.size()));
  file->sync();
  file->close();
  EXPECT_TRUE(read(at("file")) == old_text.substr(0, 4096) + new_text + old_text.substr(8192));

  storage_->open_write(at("absent"), keep);
  EXPECT_TRUE(storage_->stat(at("absent")));
}

TEST_P(StorageConformance, ClosesTwiceAndMayBeAbandoned) {
  const auto file = storage_->open_write(at("file"), options());
  file->close();
  file->close();
  { const auto abandoned = storage_->open_write(at("other"), options()); }
  EXPECT_THAT(names(root_), ElementsAre("file", "other"));
}

TEST_P(StorageConformance, ReadsSlicesAndRefusesWhatLeavesTheFile) {
  write(at("file"), "0123456789");
  const auto source = storage_->open_read(at("file"));
  EXPECT_EQ(source->size(), 10);
  EXPECT_EQ(source->name(), at("file"));
  EXPECT_EQ(source->data(), nullptr);
  std::string three(3, ' ');
  source->read_at(7, std::as_writable_bytes(std::span(three)));
  EXPECT_EQ(three, "789");
  source->read_at(10, {});
  for (const int64_t offset : {int64_t{8}, int64_t{11}, int64_t{-1}, INT64_MAX}) {
    const Error error = error_of([&] { source->read_at(offset, std::as_writable_bytes(std::span(three))); });
    EXPECT_EQ(error.code(), ErrorCode::kTruncated) << offset;
    EXPECT_EQ(error.path(), at("file"));
    EXPECT_THAT(error.what(), HasSubstr("cannot read 3 bytes: it ends at byte 10"));
  }
  EXPECT_EQ(error_of([&] { source->read_at(8, std::as_writable_bytes(std::span(three))); }).offset(), 8);
}

TEST_P(StorageConformance, AFileThatShrinksWhileOpenIsTruncatedNotGarbage) {
  write(at("file"), "0123456789");
  const auto source = storage_->open_read(at("file"));
  write(at("file"), "0123");
  std::string text(10, ' ');
  const Error error = error_of([&] { source->read_at(0, std::as_writable_bytes(std::span(text))); });
  EXPECT_EQ(error.code(), ErrorCode::kTruncated);
  EXPECT_THAT(error.what(), HasSubstr("it ends at byte 4"));
}

TEST_P(StorageConformance, AnOpenFileOutlivesItsName) {
  write(at("file"), "text");
  const auto removed = storage_->open_read(at("file"));
  storage_->remove_file(at("file"));
  write(at("file"), "other");
  std::string text(4, ' ');
  removed->read_at(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "text");
}

TEST_P(StorageConformance, SaysWhatCannotBeOpened) {
  storage_->make_directory(at("folder"));
  EXPECT_EQ(error_of([&] { storage_->open_read(at("absent")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->open_read(at("absent/file")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->open_write(at("absent/file"), options()); }).code(),
            ErrorCode::kNotFound);
  const Error read_folder = error_of([&] { storage_->open_read(at("folder")); });
  EXPECT_EQ(read_folder.code(), ErrorCode::kIo);
  EXPECT_EQ(read_folder.what(), at("folder") + ": cannot open for reading: Is a directory");
  const Error write_folder = error_of([&] { storage_->open_write(at("folder"), options()); });
  EXPECT_EQ(write_folder.code(), ErrorCode::kIo);
  EXPECT_EQ(write_folder.what(), at("folder") + ": cannot open for writing: Is a directory");
  const Error absent = error_of([&] { storage_->open_read(at("absent")); });
  EXPECT_EQ(absent.what(), at("absent") + ": cannot open for reading: No such file or directory");
  EXPECT_EQ(absent.error_number(), ENOENT);
}

TEST_P(StorageConformance, StatTellsFilesFoldersAndNothing) {
  write(at("file"), "12345");
  storage_->make_directory(at("folder"));
  const std::optional<FileInfo> file = storage_->stat(at("file"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->name, "file");
  EXPECT_TRUE(file->is_regular);
  EXPECT_FALSE(file->is_directory);
  EXPECT_EQ(file->size_bytes, 5);
  const std::optional<FileInfo> folder = storage_->stat(at("folder/"));
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->name, "folder");
  EXPECT_TRUE(folder->is_directory);
  EXPECT_FALSE(folder->is_regular);
  EXPECT_EQ(folder->size_bytes, 0);
  EXPECT_FALSE(storage_->stat(at("absent")));
  EXPECT_FALSE(storage_->stat(at("file/below")));
  EXPECT_FALSE(storage_->stat(at("absent/below")));
}

TEST_P(StorageConformance, ListsSortedByName) {
  for (const char* name : {"b", "a", "B", ".hidden", "a0"}) write(at(name), name);
  storage_->make_directory(at("aa"));
  write(at("aa/inner"), "");
  EXPECT_THAT(names(root_), ElementsAre(".hidden", "B", "a", "a0", "aa", "b"));
  const std::vector<FileInfo> found = storage_->list(root_);
  EXPECT_EQ(found[3].size_bytes, 2);
  EXPECT_TRUE(found[3].is_regular);
  EXPECT_TRUE(found[4].is_directory);
  EXPECT_THAT(names(at("aa")), ElementsAre("inner"));
  EXPECT_EQ(error_of([&] { storage_->list(at("absent")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->list(at("a")); }).code(), ErrorCode::kIo);
}

TEST_P(StorageConformance, MakesFolders) {
  storage_->make_directory(at("folder"));
  write(at("folder/file"), "text");
  storage_->make_directory(at("folder"));
  EXPECT_EQ(read(at("folder/file")), "text");
  EXPECT_EQ(error_of([&] { storage_->make_directory(at("folder/file")); }).code(), ErrorCode::kExists);
  EXPECT_EQ(error_of([&] { storage_->make_directory(at("absent/folder")); }).code(), ErrorCode::kNotFound);
}

TEST_P(StorageConformance, RenamesFilesOverFilesAndFoldersToFreeNames) {
  write(at("a"), "A");
  write(at("b"), "B");
  storage_->rename(at("a"), at("b"));
  EXPECT_EQ(read(at("b")), "A");
  EXPECT_FALSE(storage_->stat(at("a")));
  storage_->rename(at("b"), at("b"));
  EXPECT_EQ(read(at("b")), "A");

  storage_->make_directory(at("folder"));
  write(at("folder/file"), "text");
  storage_->make_directory(at("target"));
  storage_->rename(at("folder"), at("target/moved"));
  EXPECT_EQ(read(at("target/moved/file")), "text");
  EXPECT_FALSE(storage_->stat(at("folder")));
}

TEST_P(StorageConformance, RenameNeverReplacesAFolderNorByOne) {
  write(at("file"), "text");
  for (const char* name : {"empty", "full", "other"}) storage_->make_directory(at(name));
  write(at("full/inner"), "inner");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"file", "empty"}, {"file", "full"}, {"other", "empty"}, {"other", "full"}, {"other", "file"}}) {
    const Error error = error_of([&] { storage_->rename(at(from), at(to)); });
    EXPECT_EQ(error.code(), ErrorCode::kExists) << from << " -> " << to;
    EXPECT_EQ(error.path(), at(to));
    EXPECT_THAT(error.what(), HasSubstr("cannot rename " + at(from) + " to this name: File exists"));
  }
  EXPECT_THAT(names(root_), ElementsAre("empty", "file", "full", "other"));
  EXPECT_EQ(read(at("full/inner")), "inner");
}

TEST_P(StorageConformance, RenameSaysWhatIsMissing) {
  write(at("file"), "text");
  storage_->make_directory(at("folder"));
  EXPECT_EQ(error_of([&] { storage_->rename(at("absent"), at("x")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->rename(at("file"), at("absent/x")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->rename(at("folder"), at("folder/itself")); }).code(), ErrorCode::kIo);
  EXPECT_EQ(read(at("file")), "text");
}

TEST_P(StorageConformance, ExchangesTwoNamesWhateverTheyName) {
  write(at("file"), "text");
  storage_->make_directory(at("folder"));
  write(at("folder/inner"), "inner");
  storage_->make_directory(at("place"));
  write(at("place/other"), "other");
  if (!storage_->exchange(at("file"), at("place/other"))) GTEST_SKIP() << "no exchange on this file system";
  EXPECT_EQ(read(at("file")), "other");
  EXPECT_EQ(read(at("place/other")), "text");
  EXPECT_TRUE(storage_->exchange(at("file"), at("folder")));
  EXPECT_EQ(read(at("folder")), "other");
  EXPECT_EQ(read(at("file/inner")), "inner");
  EXPECT_TRUE(storage_->exchange(at("file"), at("place")));
  EXPECT_EQ(read(at("place/inner")), "inner");
  EXPECT_EQ(read(at("file/other")), "text");
  EXPECT_EQ(error_of([&] { storage_->exchange(at("file"), at("absent")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->exchange(at("absent"), at("file")); }).code(), ErrorCode::kNotFound);
  EXPECT_FALSE(storage_->exchange(at("file"), at("file/other")));
}

TEST_P(StorageConformance, RemovesFilesAndEmptyFolders) {
  write(at("file"), "text");
  storage_->make_directory(at("folder"));
  write(at("folder/inner"), "inner");
  storage_->remove_file(at("file"));
  storage_->remove_file(at("file"));
  storage_->remove_file(at("absent/file"));
  EXPECT_EQ(error_of([&] { storage_->remove_file(at("folder")); }).code(), ErrorCode::kIo);
  EXPECT_FALSE(storage_->remove_directory(at("folder")));
  EXPECT_EQ(read(at("folder/inner")), "inner");
  EXPECT_EQ(error_of([&] { storage_->remove_directory(at("folder/inner")); }).code(), ErrorCode::kIo);
  storage_->remove_file(at("folder/inner"));
  EXPECT_TRUE(storage_->remove_directory(at("folder")));
  EXPECT_FALSE(storage_->remove_directory(at("folder")));
  EXPECT_THAT(names(root_), ElementsAre());
}

TEST_P(StorageConformance, RemovesTrees) {
  std::string deep = at("tree");
  for (int level = 0; level < 20; ++level) {
    storage_->make_directory(deep);
    write(join_path(deep, "file"), "text");
    storage_->make_directory(join_path(deep, "empty"));
    deep = join_path(deep, "down");
  }
  write(at("file"), "text");
  storage_->remove_tree(at("tree"));
  storage_->remove_tree(at("tree"));
  storage_->remove_tree(at("absent/tree"));
  EXPECT_THAT(names(root_), ElementsAre("file"));
  storage_->remove_tree(at("file"));
  EXPECT_THAT(names(root_), ElementsAre());
}

TEST_P(StorageConformance, SyncsFolders) {
  write(at("file"), "text");
  storage_->sync_directory(root_);
  EXPECT_EQ(error_of([&] { storage_->sync_directory(at("absent")); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { storage_->sync_directory(at("file")); }).code(), ErrorCode::kIo);
}

TEST_P(StorageConformance, LocksExcludeEachOtherUntilReleased) {
  std::unique_ptr<FileLock> first = storage_->try_lock(at("lock"));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(storage_->try_lock(at("lock")), nullptr);
  EXPECT_NE(storage_->try_lock(at("other")), nullptr);
  first = nullptr;
  EXPECT_NE(storage_->try_lock(at("lock")), nullptr);
  EXPECT_EQ(error_of([&] { storage_->try_lock(at("absent/lock")); }).code(), ErrorCode::kNotFound);
}

TEST_P(StorageConformance, ALockWhoseFileWasRemovedDoesNotHoldUpTheNext) {
  const std::unique_ptr<FileLock> first = storage_->try_lock(at("lock"));
  storage_->remove_file(at("lock"));
  const std::unique_ptr<FileLock> second = storage_->try_lock(at("lock"));
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(storage_->try_lock(at("lock")), nullptr);
}

TEST_P(StorageConformance, ReportsFreeSpace) {
  EXPECT_GT(storage_->free_bytes(root_), 0);
  EXPECT_EQ(error_of([&] { storage_->free_bytes(at("absent")); }).code(), ErrorCode::kNotFound);
}

TEST_P(StorageConformance, WhatItOpensOutlivesIt) {
  write(at("file"), "text");
  const auto source = storage_->open_read(at("file"));
  const auto file = storage_->open_write(at("other"), options());
  const auto lock = storage_->try_lock(at("lock"));
  storage_ = nullptr;
  std::string text(4, ' ');
  source->read_at(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "text");
  file->sync();
  file->close();
}

}  // namespace
}  // namespace milepost
