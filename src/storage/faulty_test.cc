#include "milepost/storage/faulty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;

TEST(ParseFaults, ReadsFailuresAndCuts) {
  const std::vector<Fault> faults = parse_faults("fail=write:37:EIO&cut=any:12&fail=exchange:1:ENOSYS");
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(faults[0].op, "write");
  EXPECT_EQ(faults[0].call, 37);
  EXPECT_EQ(faults[0].error_number, EIO);
  EXPECT_EQ(faults[1].op, "any");
  EXPECT_EQ(faults[1].call, 12);
  EXPECT_EQ(faults[1].error_number, 0);
  EXPECT_EQ(faults[2].error_number, ENOSYS);
  EXPECT_TRUE(parse_faults("").empty());
  EXPECT_EQ(parse_faults("cut=any:1&").size(), 1u);
}

TEST(ParseFaults, KnowsTheErrorsOfADisk) {
  for (const auto& [name, number] : std::vector<std::pair<std::string, int>>{{"EIO", EIO},
                                                                             {"ENOSPC", ENOSPC},
                                                                             {"EACCES", EACCES},
                                                                             {"EROFS", EROFS},
                                                                             {"EDQUOT", EDQUOT},
                                                                             {"EMFILE", EMFILE},
                                                                             {"ENOENT", ENOENT},
                                                                             {"EINTR", EINTR}}) {
    EXPECT_EQ(parse_faults("fail=read:1:" + name).at(0).error_number, number);
  }
}

TEST(ParseFaults, RefusesWhatItDoesNotKnowAndListsWhatItDoes) {
  const auto message = [](std::string_view query) {
    return std::string(error_of([&] { parse_faults(query); }).what());
  };
  EXPECT_THAT(message("fail=write:1:EWHAT"), HasSubstr("expected one of EIO, ENOSPC"));
  EXPECT_THAT(message("fail=scribble:1:EIO"), HasSubstr("expected one of open, read, write"));
  EXPECT_THAT(message("burn=write:1:EIO"), HasSubstr("begins neither with fail= nor with cut="));
  for (const char* query : {"fail=write:0:EIO", "fail=write:-1:EIO", "fail=write:1x:EIO", "fail=write::EIO",
                            "fail=write", "fail=write:99999999999999999999:EIO", "cut=any:"}) {
    EXPECT_THAT(message(query), HasSubstr("expected the number of a call, from 1")) << query;
  }
  EXPECT_THAT(message("cut=any:1:EIO"), HasSubstr("nothing after the number"));
}

TEST(FaultyStorage, FailsOnlyThePlannedCallAndPassesOnTheRest) {
  const auto storage = faulty_storage(memory_storage(), parse_faults("fail=write:2:ENOSPC&fail=read:1:EIO"));
  const std::string text = "text";
  const Bytes part = as_bytes(text);
  const auto file = storage->open_write("/file", {});
  file->write_at(0, {&part, 1});
  const Error full = error_of([&] { file->write_at(4, {&part, 1}); });
  EXPECT_EQ(full.code(), ErrorCode::kNoSpace);
  EXPECT_EQ(full.error_number(), ENOSPC);
  EXPECT_EQ(full.path(), "/file");
  EXPECT_THAT(full.what(), HasSubstr("planned fault in write number 2: No space left on device"));
  file->write_at(4, {&part, 1});
  file->close();
  EXPECT_EQ(error_of([&] { read_file(*storage, "/file"); }).code(), ErrorCode::kIo);
  EXPECT_EQ(read_file(*storage, "/file"), "texttext");
}

TEST(FaultyStorage, CountsEveryOperation) {
  const auto storage = faulty_storage(memory_storage(), {});
  storage->make_directory("/folder");
  write_file(*storage, "/folder/a", "A");
  write_file(*storage, "/folder/b", "B");
  read_file(*storage, "/folder/a");
  storage->exchange("/folder/a", "/folder/b");
  storage->rename("/folder/a", "/folder/c");
  storage->stat("/folder/c");
  storage->list("/folder");
  storage->remove_file("/folder/b");
  storage->remove_directory("/folder");
  storage->remove_tree("/folder/c");
  storage->sync_directory("/folder");
  storage->try_lock("/lock");
  storage->free_bytes("/");
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"open", 3},   {"read", 1},   {"write", 2},   {"truncate", 2}, {"sync", 2},
      {"close", 2},  {"list", 1},   {"stat", 1},    {"mkdir", 1},    {"exchange", 1},
      {"rename", 1}, {"remove", 3}, {"syncdir", 1}, {"lock", 1},     {"free", 1}};
  for (const auto& [op, count] : expected) EXPECT_EQ(storage->calls(op), count) << op;
  EXPECT_EQ(storage->calls("any"), 2 + 2 + 2 + 2 + 2 + 1 + 1 + 1 + 3 + 1);
  EXPECT_EQ(storage->calls("nonsense"), 0);
}

TEST(FaultyStorage, FailsEachOperationByName) {
  const auto fails = [](const std::string& op, auto call) {
    const auto inner = memory_storage();
    write_file(*inner, "/a", "A");
    write_file(*inner, "/b", "B");
    const auto storage = faulty_storage(inner, {{op, 1, EACCES}});
    const Error error = error_of([&] { call(*storage); });
    EXPECT_EQ(error.error_number(), EACCES) << op;
    EXPECT_EQ(error.code(), ErrorCode::kIo) << op;
    EXPECT_FALSE(error.path().empty()) << op;
    EXPECT_EQ(read_file(*inner, "/a"), "A") << op;
  };
  fails("open", [](Storage& s) { s.open_read("/a"); });
  fails("open", [](Storage& s) { s.open_write("/a", {}); });
  fails("read", [](Storage& s) { read_file(s, "/a"); });
  for (const char* op : {"write", "truncate", "sync", "close"}) {
    fails(op, [](Storage& s) { write_file(s, "/c", "C"); });
  }
  fails("list", [](Storage& s) { s.list("/"); });
  fails("stat", [](Storage& s) { s.stat("/a"); });
  fails("mkdir", [](Storage& s) { s.make_directory("/folder"); });
  fails("rename", [](Storage& s) { s.rename("/a", "/c"); });
  fails("exchange", [](Storage& s) { s.exchange("/a", "/b"); });
  fails("remove", [](Storage& s) { s.remove_file("/a"); });
  fails("remove", [](Storage& s) { s.remove_tree("/a"); });
  fails("remove", [](Storage& s) { s.remove_directory("/a"); });
  fails("syncdir", [](Storage& s) { s.sync_directory("/"); });
  fails("lock", [](Storage& s) { s.try_lock("/lock"); });
  fails("free", [](Storage& s) { s.free_bytes("/"); });
}

TEST(FaultyStorage, CanBeWithoutExchange) {
  const auto storage = faulty_storage(memory_storage(), parse_faults("fail=exchange:1:ENOSYS"));
  write_file(*storage, "/a", "A");
  write_file(*storage, "/b", "B");
  EXPECT_FALSE(storage->exchange("/a", "/b"));
  EXPECT_EQ(read_file(*storage, "/a"), "A");
  EXPECT_TRUE(storage->exchange("/a", "/b"));
  EXPECT_EQ(read_file(*storage, "/a"), "B");
}

TEST(FaultyStorage, AfterACutNothingWorksAnyMoreAndNothingChanges) {
  const auto inner = memory_storage();
  write_file(*inner, "/old", "old");
  const auto storage = faulty_storage(inner, parse_faults("cut=any:2"));
  const auto source = storage->open_read("/old");
  const auto file = storage->open_write("/file", {});
  const std::string text = "text";
  const Bytes part = as_bytes(text);
  EXPECT_THROW(file->write_at(0, {&part, 1}), PowerCut);
  EXPECT_THROW(file->close(), PowerCut);
  EXPECT_THROW(storage->stat("/file"), PowerCut);
  EXPECT_THROW(storage->remove_file("/old"), PowerCut);
  std::byte byte;
  EXPECT_THROW(source->read_at(0, {&byte, 1}), PowerCut);
  EXPECT_EQ(read_file(*inner, "/file"), "");
  EXPECT_EQ(read_file(*inner, "/old"), "old");
}

}  // namespace
}  // namespace milepost
