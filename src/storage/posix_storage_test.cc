// What only the operating system's files do: links, special files, limits, other processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "milepost/storage/storage.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;

constexpr long kExt4 = 0xef53, kTmpfs = 0x01021994;

long file_system_type(const std::string& path) {
  struct statfs system;
  return statfs(path.c_str(), &system) == 0 ? static_cast<long>(system.f_type) : 0;
}

size_t num_open_descriptors() { return posix_storage()->list("/proc/self/fd").size(); }

class PosixStorage : public testing::Test {
 protected:
  const std::shared_ptr<Storage> storage_ = posix_storage();
  const TestFolder folder_;
};

TEST_F(PosixStorage, WritesDirectlyOnADiskAndNotOnTmpfs) {
  if (file_system_type(folder_.path()) == kExt4) {
    EXPECT_EQ(storage_->open_write(folder_ / "file", {})->alignment(), 4096);
  }
  EXPECT_EQ(storage_->open_write(folder_ / "file", {.direct = false})->alignment(), 1);
  if (file_system_type("/dev/shm") == kTmpfs && access("/dev/shm", W_OK) == 0) {
    const std::string path = "/dev/shm/milepost-test-" + std::to_string(getpid());
    EXPECT_EQ(storage_->open_write(path, {})->alignment(), 1);
    storage_->remove_file(path);
  }
}

TEST_F(PosixStorage, RefusesMoreThanTheDiskHoldsBeforeWriting) {
  const auto open = [&] {
    return storage_->open_write(folder_ / "file", {.expected_size_bytes = int64_t{1} << 50});
  };
  if (storage_->open_write(folder_ / "probe", {})->alignment() == 1) GTEST_SKIP() << "no direct writes here";
  const Error error = error_of(open);
  EXPECT_TRUE(error.error_number() == ENOSPC || error.error_number() == EFBIG) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("cannot make room for 1125899906842624 bytes"));
  EXPECT_EQ(storage_->stat(folder_ / "file")->size_bytes, 0);
}

TEST_F(PosixStorage, RefusesSpecialFilesWithoutWaiting) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string socket_path = folder_ / "socket";
  ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
  socket_path.copy(address.sun_path, socket_path.size());
  ASSERT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const std::string& path : {folder_ / "fifo", socket_path, std::string("/dev/null")}) {
    for (const Error& error :
         {error_of([&] { storage_->open_read(path); }), error_of([&] { storage_->open_write(path, {}); })}) {
      EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
      EXPECT_EQ(error.what(), path + ": expected a regular file, not a FIFO, socket or device");
    }
    EXPECT_FALSE(storage_->stat(path)->is_regular);
  }
  close(server);
}

TEST_F(PosixStorage, ListsLinksByWhatTheyLeadTo) {
  write_file(*storage_, folder_ / "file", "12345");
  ASSERT_EQ(symlink("file", (folder_ / "link").c_str()), 0);
  ASSERT_EQ(symlink(".", (folder_ / "loop").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", (folder_ / "dangling").c_str()), 0);
  const std::vector<FileInfo> found = storage_->list(folder_.path());
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].name, "dangling");
  EXPECT_FALSE(found[0].is_regular || found[0].is_directory);
  EXPECT_TRUE(found[2].is_regular);
  EXPECT_EQ(found[2].size_bytes, 5);
  EXPECT_TRUE(found[3].is_directory);
  EXPECT_FALSE(storage_->stat(folder_ / "dangling"));
  EXPECT_EQ(read_file(*storage_, folder_ / "link"), "12345");
}

TEST_F(PosixStorage, RemovingATreeNeverFollowsLinks) {
  storage_->make_directory(folder_ / "kept");
  write_file(*storage_, folder_ / "kept/file", "text");
  storage_->make_directory(folder_ / "tree");
  ASSERT_EQ(symlink("../kept", (folder_ / "tree/to_folder").c_str()), 0);
  ASSERT_EQ(symlink("../kept/file", (folder_ / "tree/to_file").c_str()), 0);
  ASSERT_EQ(symlink("..", (folder_ / "tree/up").c_str()), 0);
  storage_->remove_tree(folder_ / "tree");
  EXPECT_FALSE(storage_->stat(folder_ / "tree"));
  ASSERT_EQ(symlink("kept", (folder_ / "link").c_str()), 0);
  storage_->remove_tree(folder_ / "link");
  EXPECT_EQ(read_file(*storage_, folder_ / "kept/file"), "text");
}

TEST_F(PosixStorage, RefusesToRemoveAbsurdlyDeepTrees) {
  const int start = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(chdir(folder_.path().c_str()), 0);
  for (int level = 0; level < 260; ++level) {
    ASSERT_EQ(mkdir("d", 0700), 0);
    ASSERT_EQ(chdir("d"), 0);
  }
  const Error error = error_of([&] { storage_->remove_tree(folder_ / "d"); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_THAT(error.what(), HasSubstr("nested more than 256 deep"));
  for (int level = 0; level < 260; ++level) {
    ASSERT_EQ(chdir(".."), 0);
    ASSERT_EQ(rmdir("d"), 0);
  }
  ASSERT_EQ(fchdir(start), 0);
  close(start);
}

TEST_F(PosixStorage, RenamesAndExchangesLinksThemselves) {
  write_file(*storage_, folder_ / "file", "text");
  ASSERT_EQ(symlink("file", (folder_ / "link").c_str()), 0);
  write_file(*storage_, folder_ / "new", "new");
  storage_->rename(folder_ / "new", folder_ / "link");
  EXPECT_EQ(read_file(*storage_, folder_ / "link"), "new");
  EXPECT_EQ(read_file(*storage_, folder_ / "file"), "text");
}

TEST_F(PosixStorage, ALockFileIsNeverOpenedThroughALink) {
  ASSERT_EQ(symlink("elsewhere", (folder_ / "lock").c_str()), 0);
  EXPECT_EQ(error_of([&] { storage_->try_lock(folder_ / "lock"); }).error_number(), ELOOP);
  EXPECT_FALSE(storage_->stat(folder_ / "elsewhere"));
}

TEST_F(PosixStorage, AFailedWriteSaysWhere) {
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const bool direct : {false, true}) {
    const auto file = storage_->open_write(folder_ / "file", {.direct = direct});
    const AlignedBuffer buffer(3 << 20);
    std::memset(buffer.data(), 'x', static_cast<size_t>(buffer.size()));
    const Bytes part = buffer.span();
    const Error error = error_of([&] { file->write_at(0, {&part, 1}); });
    EXPECT_EQ(error.error_number(), EFBIG);
    EXPECT_EQ(error.path(), folder_ / "file");
    EXPECT_EQ(error.offset(), 1 << 20) << "what fits is written, then the next call fails";
    EXPECT_THAT(error.what(), HasSubstr("cannot write"));
    EXPECT_EQ(error_of([&] { file->truncate(3 << 20); }).error_number(), EFBIG);
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
}

TEST_F(PosixStorage, LeaksNoDescriptorsAndMarksThemCloseOnExec) {
  const size_t before = num_open_descriptors();
  {
    write_file(*storage_, folder_ / "file", "text");
    const auto source = storage_->open_read(folder_ / "file");
    const auto file = storage_->open_write(folder_ / "other", {});
    const auto lock = storage_->try_lock(folder_ / "lock");
    EXPECT_EQ(num_open_descriptors(), before + 3);
    for (const FileInfo& info : storage_->list("/proc/self/fd")) {
      const int fd = std::stoi(info.name);
      char target[4096];
      const ssize_t length = readlink(("/proc/self/fd/" + info.name).c_str(), target, sizeof(target));
      if (length > 0 && std::string_view(target, static_cast<size_t>(length)).starts_with(folder_.path())) {
        EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
      }
    }
    storage_->make_directory(folder_ / "tree");
    storage_->make_directory(folder_ / "tree/inner");
    storage_->list(folder_.path());
    storage_->sync_directory(folder_.path());
    storage_->remove_tree(folder_ / "tree");
    error_of([&] { storage_->open_read(folder_.path()); });
    error_of([&] { storage_->open_read("/dev/null"); });
  }
  EXPECT_EQ(num_open_descriptors(), before);
}

TEST_F(PosixStorage, ALockHoldsAgainstOtherProcessesAndDiesWithItsOwn) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = storage_->try_lock(folder_ / "lock");
    (void)!write(ready[1], lock != nullptr ? "y" : "n", 1);
    for (;;) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(storage_->try_lock(folder_ / "lock"), nullptr);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NE(storage_->try_lock(folder_ / "lock"), nullptr);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(PosixStorage, TellsWhenAFileWasModified) {
  write_file(*storage_, folder_ / "file", "text");
  const timespec times[2] = {{5, 6}, {1'700'000'000, 123}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder_ / "file").c_str(), times, 0), 0);
  EXPECT_EQ(storage_->stat(folder_ / "file")->modified_ns, 1'700'000'000'000'000'123);
  EXPECT_EQ(storage_->list(folder_.path()).at(0).modified_ns, 1'700'000'000'000'000'123);
  EXPECT_EQ(storage_->stat(folder_.path())->modified_ns, 0);
}

}  // namespace
}  // namespace milepost
