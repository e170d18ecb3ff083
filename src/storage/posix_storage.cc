// The operating system's files as a Storage. What needs more than one call:
//
// 1. rename of a folder uses RENAME_NOREPLACE, since a plain rename replaces an empty folder.
// 2. exchange is renameat2(RENAME_EXCHANGE), which ext4, XFS, btrfs and tmpfs have, NFS and most FUSE
//    systems not.
// 3. remove_tree opens each folder with O_NOFOLLOW and removes relative to it, so that a link put in the
//    way while it runs leads nowhere.
// 4. A lock is flock on a file of its own, bound to the open file, thus gone with the process. A holder
//    may remove the file before it lets go, so whoever gets the lock checks that the path still leads to
//    what was locked.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "milepost/base/checked_math.h"
#include "milepost/storage/storage.h"
#include "storage/errno_error.h"
#include "storage/posix_file.h"

namespace milepost {
namespace {

constexpr int kMaxDepth = 256;  // of folders in remove_tree: each level holds a descriptor and a stack frame
constexpr int64_t kNanosecondsASecond = 1'000'000'000;
constexpr int kMaxAttempts = 100;  // where other processes may come between two calls

FileInfo file_info(std::string name, const struct stat& info) {
  const bool is_regular = S_ISREG(info.st_mode);
  if (!is_regular) return {.name = std::move(name), .is_directory = S_ISDIR(info.st_mode)};
  const int64_t modified_ns = info.st_mtim.tv_sec * kNanosecondsASecond + info.st_mtim.tv_nsec;
  return {std::move(name), false, true, info.st_size, modified_ns};
}

bool is_absent(int error_number) { return error_number == ENOENT || error_number == ENOTDIR; }

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// Names in the open folder, without . and .., in no order. Takes the descriptor over.
std::vector<std::string> read_names(FileDescriptor fd, const std::string& path) {
  const std::unique_ptr<DIR, CloseDirectory> directory(fdopendir(fd.get()));
  if (directory == nullptr) throw errno_error("cannot list", path, errno);
  fd.release();
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) throw errno_error("cannot list", path, errno);
  return names;
}

FileDescriptor open_folder(std::string_view purpose, const std::string& path) {
  const int fd = retry_interrupted([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) throw errno_error(fmt::format("cannot {} the folder", purpose), path, errno);
  return FileDescriptor(fd);
}

FileDescriptor open_lock(const std::string& path) {
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int fd = retry_interrupted([&] { return open(path.c_str(), flags, 0666); });
  if (fd < 0) throw errno_error("cannot open the lock file", path, errno);
  return FileDescriptor(fd);
}

FileDescriptor open_folder_at(int parent, const char* name, const std::string& path) {
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int fd = retry_interrupted([&] { return openat(parent, name, flags); });
  if (fd < 0 && !is_absent(errno)) throw errno_error("cannot open the folder to empty it", path, errno);
  return FileDescriptor(fd);
}

// Removes `name` in `parent` and all below. `path` is its name in messages.
void remove_at(int parent, const char* name, const std::string& path, int depth) {
  if (unlinkat(parent, name, 0) == 0 || errno == ENOENT || errno == ENOTDIR) return;
  // Linux says EISDIR for a folder, POSIX allows EPERM.
  if (errno != EISDIR && errno != EPERM) throw errno_error("cannot remove", path, errno);
  const int unlink_error = errno;
  if (depth == kMaxDepth) {
    throw StorageError(ErrorCode::kIo,
                       fmt::format("cannot remove: folders are nested more than {} deep", kMaxDepth), path);
  }
  const FileDescriptor folder = open_folder_at(parent, name, path);
  if (folder.get() < 0) throw errno_error("cannot remove", path, unlink_error);
  FileDescriptor for_names(fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  if (for_names.get() < 0) throw errno_error("cannot open the folder to empty it", path, errno);
  for (const std::string& entry : read_names(std::move(for_names), path)) {
    remove_at(folder.get(), entry.c_str(), join_path(path, entry), depth + 1);
  }
  if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
    throw errno_error("cannot remove the folder", path, errno);
  }
}

class PosixLock final : public FileLock {
 public:
  explicit PosixLock(FileDescriptor fd) : fd_(std::move(fd)) {}

 private:
  const FileDescriptor fd_;  // closing it unlocks
};

class PosixStorage final : public Storage {
 public:
  std::unique_ptr<ByteSource> open_read(const std::string& path) override { return open_posix_source(path); }

  std::unique_ptr<WritableFile> open_write(const std::string& path,
                                           const WriteFileOptions& options) override {
    return open_posix_writable(path, options);
  }

  std::optional<FileInfo> stat(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) return file_info(base_name(path), info);
    if (is_absent(errno)) return std::nullopt;
    throw errno_error("cannot look at", path, errno);
  }

  std::vector<FileInfo> list(const std::string& directory) override {
    const FileDescriptor folder = open_folder("list", directory);
    FileDescriptor for_names(fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
    if (for_names.get() < 0) throw errno_error("cannot list", directory, errno);
    std::vector<std::string> names = read_names(std::move(for_names), directory);
    std::sort(names.begin(), names.end());
    std::vector<FileInfo> found;
    found.reserve(names.size());
    for (std::string& name : names) {
      struct stat info;
      if (fstatat(folder.get(), name.c_str(), &info, 0) == 0) {
        found.push_back(file_info(std::move(name), info));
      } else if (fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
        found.push_back({.name = std::move(name)});  // a link that leads nowhere
      }                                              // else removed since it was listed
    }
    return found;
  }

  void make_directory(const std::string& path) override {
    for (int attempt = 1;; ++attempt) {
      if (mkdir(path.c_str(), 0777) == 0) return;
      const int error_number = errno;
      struct stat info;
      const bool exists = error_number == EEXIST && ::stat(path.c_str(), &info) == 0;
      if (exists && S_ISDIR(info.st_mode)) return;
      const bool is_gone = error_number == EEXIST && !exists && errno == ENOENT;
      if (!is_gone || attempt == kMaxAttempts)
        throw errno_error("cannot make the folder", path, error_number);
    }
  }

  void rename(const std::string& from, const std::string& to) override {
    struct stat info;
    if (lstat(from.c_str(), &info) != 0) throw errno_error("cannot rename", from, errno);
    if (S_ISDIR(info.st_mode)) {
      if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
      if (errno != EINVAL && errno != ENOSYS) throw_rename_error(from, to, errno);
      if (lstat(to.c_str(), &info) == 0) throw_rename_error(from, to, EEXIST);
    }
    if (::rename(from.c_str(), to.c_str()) != 0) throw_rename_error(from, to, errno);
  }

  bool exchange(const std::string& a, const std::string& b) override {
    if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
    throw errno_error(fmt::format("cannot exchange with {}", printable(a)), b, errno);
  }

  void remove_file(const std::string& path) override {
    if (unlink(path.c_str()) != 0 && !is_absent(errno)) throw errno_error("cannot remove", path, errno);
  }

  bool remove_directory(const std::string& path) override {
    if (rmdir(path.c_str()) == 0) return true;
    if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) return false;
    throw errno_error("cannot remove the folder", path, errno);
  }

  void remove_tree(const std::string& path) override { remove_at(AT_FDCWD, path.c_str(), path, 0); }

  void sync_directory(const std::string& path) override {
    const FileDescriptor folder = open_folder("sync", path);
    // EINVAL: a file system that has nothing to sync in a folder.
    if (retry_interrupted([&] { return fsync(folder.get()); }) != 0 && errno != EINVAL) {
      throw errno_error("cannot sync the folder", path, errno);
    }
  }

  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      FileDescriptor fd = open_lock(path);
      if (retry_interrupted([&] { return flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
        if (errno == EWOULDBLOCK) return nullptr;
        if (errno != ENOSYS && errno != EOPNOTSUPP) throw errno_error("cannot lock", path, errno);
      }
      struct stat locked, named;
      if (fstat(fd.get(), &locked) != 0) throw errno_error("cannot look at the lock", path, errno);
      if (lstat(path.c_str(), &named) != 0) {
        if (!is_absent(errno)) throw errno_error("cannot look at the lock", path, errno);
      } else if (locked.st_dev == named.st_dev && locked.st_ino == named.st_ino) {
        return std::make_unique<PosixLock>(std::move(fd));
      }
    }
    return nullptr;  // others take and remove it all the time
  }

  int64_t free_bytes(const std::string& path) override {
    struct statvfs system;
    if (retry_interrupted([&] { return statvfs(path.c_str(), &system); }) != 0) {
      StorageError error = errno_error("cannot find out the free space", path, errno);
      if (error.code() == ErrorCode::kNotFound) error.set_hint("make this folder first");
      throw error;
    }
    int64_t bytes;
    const bool fits =
        checked_mul(static_cast<int64_t>(system.f_bavail), static_cast<int64_t>(system.f_frsize), &bytes);
    return fits ? bytes : std::numeric_limits<int64_t>::max();
  }

 private:
  [[noreturn]] static void throw_rename_error(const std::string& from, const std::string& to,
                                              int error_number) {
    // A folder in the way shows as any of these, depending on what was to be renamed.
    if (error_number == EISDIR || error_number == ENOTDIR || error_number == ENOTEMPTY) {
      struct stat info;
      if (lstat(to.c_str(), &info) == 0) error_number = EEXIST;
    }
    throw errno_error(fmt::format("cannot rename {} to this name", printable(from)), to, error_number);
  }
};

}  // namespace

std::shared_ptr<Storage> posix_storage() {
  static const std::shared_ptr<Storage> instance = std::make_shared<PosixStorage>();
  return instance;
}

}  // namespace milepost
