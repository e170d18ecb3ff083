#include "engine/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "milepost/base/error.h"
#include "milepost/storage/faulty.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kBlock = Journal::kMinBlockBytes;
constexpr auto kNever = std::chrono::hours(1);
const std::string kPath = "/journal";

ConversionIdentity identity(uint8_t source = 1, uint8_t plan = 2) {
  ConversionIdentity made;
  made.source.fill(source);
  made.plan.fill(plan);
  return made;
}

class JournalTest : public ::testing::Test {
 protected:
  Journal journal(const ConversionIdentity& who = identity(), Journal::Policy policy = {1, kNever, 0}) {
    return Journal(*storage_, kPath, who, policy);
  }
  // A journal of blocks 0 and 2 of file 0 and block 1 of file 1.
  void write() {
    Journal made = journal();
    made.set_block_bytes(kBlock);
    made.add(0, 0, 100, kBlock);
    made.add(0, 2, 102, kBlock);
    made.add(1, 1, 111, kBlock);
  }
  std::string text() {
    const auto file = storage_->open_read(kPath);
    return std::string(as_text(read_all(*file, file->size())));
  }
  void set_text(std::string_view text) {
    const auto file = storage_->open_write(kPath, {.direct = false});
    const Bytes bytes = as_bytes(text);
    if (!text.empty()) file->write_at(0, {&bytes, 1});
    file->close();
  }

  std::shared_ptr<Storage> storage_ = memory_storage();
  const std::vector<int64_t> sizes_{3 * kBlock, kBlock + 1, 10};
};

TEST_F(JournalTest, RemembersBlocks) {
  write();
  Journal again = journal();
  ASSERT_EQ(again.read(sizes_), Journal::Found::kRecords);
  EXPECT_EQ(again.block_bytes(), kBlock);
  EXPECT_EQ(again.recorded_crc(0, 0), 100U);
  EXPECT_EQ(again.recorded_crc(0, 1), std::nullopt);
  EXPECT_EQ(again.recorded_crc(0, 2), 102U);
  EXPECT_EQ(again.recorded_crc(1, 1), 111U);
  EXPECT_TRUE(again.has_records(1));
  EXPECT_FALSE(again.has_records(2));
  EXPECT_EQ(again.recorded_crc(2, 0), std::nullopt);
}

TEST_F(JournalTest, MakesNoFileBeforeEnoughIsWritten) {
  Journal made = journal(identity(), {3 * kBlock, kNever, 4 * kBlock});
  made.set_block_bytes(kBlock);
  made.add(0, 0, 0, kBlock);
  made.add(0, 1, 0, kBlock);
  EXPECT_FALSE(storage_->stat(kPath));
  made.add(0, 2, 0, kBlock);
  EXPECT_TRUE(storage_->stat(kPath));
  EXPECT_FALSE(made.is_worth_keeping());
  made.add_kept(kBlock);
  EXPECT_TRUE(made.is_worth_keeping());
}

TEST_F(JournalTest, WritesAfterAWhileWhateverTheSize) {
  Journal made = journal(identity(), {INT64_MAX, std::chrono::milliseconds(0), 0});
  made.set_block_bytes(kBlock);
  made.add(0, 0, 0, 1);
  EXPECT_TRUE(storage_->stat(kPath));
}

TEST_F(JournalTest, TellsAnotherSourceFromAnotherPlanAndNothing) {
  EXPECT_EQ(journal().read(sizes_), Journal::Found::kNothing);
  write();
  EXPECT_EQ(journal(identity(9, 2)).read(sizes_), Journal::Found::kOtherSource);
  EXPECT_EQ(journal(identity(9, 9)).read(sizes_), Journal::Found::kOtherSource);
  EXPECT_EQ(journal(identity(1, 9)).read(sizes_), Journal::Found::kOtherPlan);
  EXPECT_EQ(journal().read(sizes_), Journal::Found::kRecords);
}

TEST_F(JournalTest, ContinuesAfterWhatIsThere) {
  write();
  set_text(text() + "torn");
  Journal again = journal();
  again.read(sizes_);
  again.add(0, 1, 101, kBlock);
  again.add(0, 2, 999, kBlock);
  Journal third = journal();
  ASSERT_EQ(third.read(sizes_), Journal::Found::kRecords);
  EXPECT_EQ(third.recorded_crc(0, 0), 100U);
  EXPECT_EQ(third.recorded_crc(0, 1), 101U);
  EXPECT_EQ(third.recorded_crc(0, 2), 999U) << "the later record holds";
}

TEST_F(JournalTest, ForgetsAFileThatIsInDoubt) {
  {
    Journal made = journal();
    made.set_block_bytes(kBlock);
    made.add(0, 0, 100, kBlock);
    made.add(1, 0, 110, kBlock);
    made.forget(0);
    made.add(0, 1, 101, kBlock);
  }
  Journal again = journal();
  ASSERT_EQ(again.read(sizes_), Journal::Found::kRecords);
  EXPECT_EQ(again.recorded_crc(0, 0), std::nullopt);
  EXPECT_EQ(again.recorded_crc(0, 1), 101U);
  EXPECT_EQ(again.recorded_crc(1, 0), 110U);
}

TEST_F(JournalTest, GoesRatherThanKeepARecordInDoubt) {
  const auto faulty = faulty_storage(storage_, {{"write", 2, ENOSPC}});
  Journal made(*faulty, kPath, identity(), {1, kNever, 0});
  made.set_block_bytes(kBlock);
  made.add(0, 0, 100, kBlock);
  made.forget(0);
  EXPECT_FALSE(storage_->stat(kPath));
  made.add(0, 1, 100, kBlock);
  made.flush();
  EXPECT_FALSE(storage_->stat(kPath));
  EXPECT_FALSE(made.is_worth_keeping());
}

TEST_F(JournalTest, ReportsThatItCannotBeWritten) {
  const auto faulty = faulty_storage(storage_, {{"write", 1, ENOSPC}});
  Journal made(*faulty, kPath, identity(), {1, kNever, 0});
  made.set_block_bytes(kBlock);
  try {
    made.add(0, 0, 100, kBlock);
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
    EXPECT_EQ(error.path(), kPath);
  }
  made.flush();  // tries again, the header included
  EXPECT_EQ(journal().read(sizes_), Journal::Found::kRecords);
}

TEST_F(JournalTest, ABlockSizeThatNoConversionUsesIsNoJournal) {
  for (const int64_t bytes : {int64_t{0}, kBlock / 2, kBlock + 1, Journal::kMaxBlockBytes + 4096}) {
    storage_->remove_file(kPath);
    {
      Journal made = journal();
      made.set_block_bytes(bytes);
      made.add(0, 0, 0, 1);
    }
    EXPECT_EQ(journal().read(sizes_), Journal::Found::kNothing) << bytes;
  }
}

TEST_F(JournalTest, RecordsOfFilesAndBlocksThatThereCannotBeArePassedOver) {
  {
    Journal made = journal();
    made.set_block_bytes(kBlock);
    made.add(0, 3, 1, kBlock);
    made.add(3, 0, 1, kBlock);
    made.add(0xfffffffe, 0xfffffffe, 1, kBlock);
    made.add(2, 0, 120, 10);
  }
  Journal again = journal();
  ASSERT_EQ(again.read(sizes_), Journal::Found::kRecords);
  EXPECT_FALSE(again.has_records(0));
  EXPECT_FALSE(again.has_records(3));
  EXPECT_EQ(again.recorded_crc(2, 0), 120U);
}

// Every cut and every changed byte: what is left of the records is right, the rest is not there.
TEST_F(JournalTest, TornAndGarbledBytesCostTheirRecordOnly) {
  write();
  const std::string whole = text();
  const size_t header = whole.size() - 3 * 16;
  const auto check = [&](const std::string& damaged, int64_t intact_from, int64_t intact_to) {
    set_text(damaged);
    Journal again = journal();
    const Journal::Found found = again.read(sizes_);
    if (found != Journal::Found::kRecords) {
      EXPECT_EQ(again.recorded_crc(0, 0), std::nullopt);
      return false;
    }
    int64_t num_found = 0;
    for (const auto& [file, block, crc] :
         std::vector<std::tuple<size_t, int64_t, uint32_t>>{{0, 0, 100}, {0, 2, 102}, {1, 1, 111}}) {
      const auto recorded = again.recorded_crc(file, block);
      if (!recorded) continue;
      EXPECT_EQ(*recorded, crc);
      ++num_found;
    }
    EXPECT_EQ(again.recorded_crc(0, 1), std::nullopt);
    EXPECT_EQ(again.recorded_crc(1, 0), std::nullopt);
    EXPECT_GE(num_found, intact_from);
    EXPECT_LE(num_found, intact_to);
    return true;
  };
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto num_whole = static_cast<int64_t>((length - std::min(length, header)) / 16);
    EXPECT_EQ(check(whole.substr(0, length), num_whole, num_whole), length >= header) << length;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(check(damaged, 2, 2), at >= header) << at;
  }
  EXPECT_TRUE(check(whole.substr(0, header) + std::string(16, '\0') + whole.substr(header + 16), 2, 2));
}

TEST_F(JournalTest, AHugeFileIsNotReadThrough) {
  write();
  const auto file = storage_->open_write(kPath, {.direct = false, .keep_content = true});
  file->truncate(16 << 20);
  const auto counting = faulty_storage(storage_, {});
  Journal again(*counting, kPath, identity(), {});
  EXPECT_EQ(again.read(sizes_), Journal::Found::kNothing);
  EXPECT_LE(counting->calls("read"), 1);
}

TEST_F(JournalTest, AFileThatCannotBeReadIsNothing) {
  write();
  for (const char* op : {"open", "read"}) {
    for (int64_t call = 1; call <= 2; ++call) {
      const auto faulty = faulty_storage(storage_, {{op, call, EIO}});
      Journal again(*faulty, kPath, identity(), {});
      const bool fails = call == 1 || std::strcmp(op, "read") == 0;
      EXPECT_EQ(again.read(sizes_), fails ? Journal::Found::kNothing : Journal::Found::kRecords);
    }
  }
  storage_->remove_file(kPath);
  storage_->make_directory(kPath);
  EXPECT_EQ(journal().read(sizes_), Journal::Found::kNothing);
}

TEST_F(JournalTest, BeginsInWordsThatSayWhatItIs) {
  write();
  EXPECT_THAT(text(), StartsWith("milepost conversion journal 1\nsource 0101"));
  EXPECT_THAT(text(), HasSubstr("\nblock 000001048576\ncheck "));
}

}  // namespace
}  // namespace milepost
