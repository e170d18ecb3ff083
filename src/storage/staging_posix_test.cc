// Staging on the operating system's files: links, special files, and processes that race or are killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <csignal>
#include <future>
#include <thread>

#include "milepost/storage/staging.h"
#include "storage/test_folders.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;
using Kind = StagedOutput::Kind;

TEST(StagingOnPosix, ReplacesALinkAndLeavesWhatItNames) {
  const TestFolder folder;
  make_folder(*posix_storage(), folder / "real", kOld);
  ASSERT_EQ(symlink("real", (folder / "out").c_str()), 0);
  StagedOutput output(posix_storage(), folder / "out", Kind::kDirectory, true);
  make_folder(*posix_storage(), output.path(), kNew);
  output.commit();
  EXPECT_EQ(read_content(*posix_storage(), folder / "real"), kOld);
  EXPECT_EQ(read_content(*posix_storage(), folder / "out"), kNew);
  EXPECT_EQ(posix_storage()->list(folder.path()).size(), 2u);
}

TEST(StagingOnPosix, RefusesToReplaceSpecialFiles) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const Error error = error_of([&] { StagedOutput(posix_storage(), folder / "fifo", Kind::kFile, true); });
  EXPECT_EQ(error.code(), ErrorCode::kExists);
  EXPECT_THAT(error.what(), HasSubstr("neither a file nor a folder"));
}

// As who clears debris does.
TEST(StagingOnPosix, WaitsForOneWhoHoldsTheLockForAMoment) {
  const TestFolder folder;
  std::promise<void> held;
  std::thread other([&] {
    const StagedOutput output(posix_storage(), folder / "out", Kind::kDirectory, false);
    held.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  held.get_future().wait();
  StagedOutput output(posix_storage(), folder / "out", Kind::kDirectory, false);
  other.join();
  make_folder(*posix_storage(), output.path(), kNew);
  output.commit();
}

TEST(StagingOnPosix, WorksRelativeToTheCurrentFolder) {
  const TestFolder folder;
  const int start = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(chdir(folder.path().c_str()), 0);
  {
    StagedOutput output(posix_storage(), "out", Kind::kDirectory, false);
    make_folder(*posix_storage(), output.path(), kNew);
    EXPECT_EQ(error_of([&] { StagedOutput(posix_storage(), folder / "out", Kind::kFile, false); }).code(),
              ErrorCode::kLocked);
    output.commit();
  }
  ASSERT_EQ(fchdir(start), 0);
  close(start);
  EXPECT_EQ(read_content(*posix_storage(), folder.path()), below("out", kNew));
}

// Publishes `count` times, trying again while another process is at it. Writes a byte to `steps` after each
// step.
int publish_repeatedly(const std::string& final_path, int id, int count, int steps = -1) {
  const auto step = [steps] {
    if (steps >= 0) (void)!write(steps, "s", 1);
  };
  for (int num_published = 0; num_published < count;) {
    try {
      StagedOutput output(posix_storage(), final_path, Kind::kDirectory, true);
      step();
      const std::string text = std::to_string(id) + "." + std::to_string(num_published);
      for (const char* name : {"a.distcp", "b.distcp"}) {
        const auto file = posix_storage()->open_write(join_path(output.path(), name), {.direct = false});
        const Bytes part = as_bytes(text);
        file->write_at(0, {&part, 1});
        file->close();
        step();
      }
      output.commit();
      step();
      ++num_published;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kLocked) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
      }
    }
  }
  return 0;
}

TEST(StagingOnPosix, ProcessesThatRaceForOneNameTakeTurns) {
  const TestFolder folder;
  std::vector<pid_t> children;
  for (int id = 0; id < 4; ++id) {
    const pid_t child = fork();
    if (child == 0) _exit(publish_repeatedly(folder / "out", id, 25));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const FolderContent content = read_content(*posix_storage(), folder.path());
  ASSERT_EQ(content->size(), 3u) << "the folder and its two files, no debris";
  EXPECT_EQ(content->at("out/a.distcp"), content->at("out/b.distcp"));
}

TEST(StagingOnPosix, ProcessesKilledAtAnyMomentLeaveAWholeOutput) {
  const TestFolder folder;
  ASSERT_EQ(publish_repeatedly(folder / "out", 99, 1), 0);
  int steps[2];
  ASSERT_EQ(pipe2(steps, O_CLOEXEC), 0);
  for (int victim = 0; victim < 60; ++victim) {
    const pid_t child = fork();
    if (child == 0) _exit(publish_repeatedly(folder / "out", victim, INT_MAX, steps[1]));
    for (int step = 0; step <= victim % 12; ++step) {
      char byte;
      ASSERT_EQ(read(steps[0], &byte, 1), 1);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const FolderContent content = read_content(*posix_storage(), folder / "out");
    ASSERT_TRUE(content);
    ASSERT_EQ(content->size(), 2u);
    ASSERT_EQ(content->at("a.distcp"), content->at("b.distcp"));
  }
  close(steps[0]);
  close(steps[1]);
  EXPECT_EQ(publish_repeatedly(folder / "out", 99, 1), 0);
  EXPECT_EQ(read_content(*posix_storage(), folder.path()),
            below("out", {{"a.distcp", "99.0"}, {"b.distcp", "99.0"}}));
}

}  // namespace
}  // namespace milepost
