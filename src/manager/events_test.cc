#include "milepost/manager/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "manager/test_steps.h"

namespace milepost::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = CheckpointEvent::Kind;

const CheckpointEvent kCommit{Kind::kCommitted, 500, 1'500'000'000, 0.75, 0.5};
const CheckpointEvent kWritten{Kind::kWritten, 500, 1'500'000'000, 0.5};

TEST(Events, AreLinesForPeopleAndPrograms) {
  EXPECT_EQ(
      event_json(kCommit, 1764460800.125),
      R"({"time": 1764460800.125, "event": "committed", "step": 500, "bytes": 1500000000, "seconds": 0.750000, )"
      R"("gb_per_s": 2.0000, "pause_seconds": 0.500000})");
  EXPECT_EQ(event_text(kCommit),
            "Checkpoint step-500 committed: 1.50 GB in 0.75 s, 2.00 GB/s; training stood still for 0.50 s");
  EXPECT_EQ(event_text(kWritten), "Checkpoint step-500 written: 1.50 GB in 0.50 s, 3.00 GB/s");
  EXPECT_EQ(gigabytes_per_second({Kind::kRemoved, 1, 10, 0}), 0);
}

struct Lines {
  std::vector<std::string> info, warnings;
  EventLog::Log log() {
    return
        [this](bool is_warning, std::string_view text) { (is_warning ? warnings : info).emplace_back(text); };
  }
};

std::string text_of(const StorageLocation& file) {
  const auto source = file.storage->open_read(file.path);
  std::string text(static_cast<size_t>(source->size()), ' ');
  source->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(Events, AreAppendedToWhatIsThere) {
  TestSteps folder;
  folder.write("events.jsonl", "older\n");
  const StorageLocation file{folder.where.storage, "/run/events.jsonl"};
  Lines lines;
  EventLog events(file, lines.log());
  events.add(kWritten);
  events.add(kCommit);
  const std::string text = text_of(file);
  EXPECT_TRUE(text.starts_with("older\n{\"time\": "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(lines.info, ElementsAre(event_text(kWritten), event_text(kCommit)));
}

TEST(Events, FailToBeWrittenWithOneWarning) {
  TestSteps folder;
  Lines lines;
  EventLog events({folder.where.storage, "/nowhere/events.jsonl"}, lines.log());
  events.add(kWritten);
  events.add(kCommit);
  EXPECT_EQ(lines.info.size(), 2U);
  EXPECT_THAT(lines.warnings, ElementsAre(HasSubstr("no longer recorded")));
}

}  // namespace
}  // namespace milepost::manager
