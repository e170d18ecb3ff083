// Storage: the operations on files that a checkpoint needs, over posix folders, memory (tests) or a wrapper that fails on purpose.
//
// Paths are absolute or relative to the process, '/'-separated. Threads: all members may be called from any thread. Errors: StorageError with path and errno.
// A full disk is kNoSpace, an absent file kNotFound, an occupied name kExists, everything else kIo.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"

namespace milepost {

struct FileInfo {
  std::string name;  // last path component
  bool is_directory = false;
  bool is_regular = false;  // false for sockets, devices, ... which are never opened; links are followed
  int64_t size_bytes = 0;
};

struct WriteFileOptions {
  int64_t expected_size_bytes = -1;  // final size when known: lets the file system lay out the file at once
  bool direct = true;                // go around the page cache where the file system can (O_DIRECT); else buffered
};

// A file being written at offsets. Threads: write_at may be called from several threads at once on ranges that do not overlap.
//
// Durability: nothing is promised before sync() has returned. Destruction without close() abandons the file and reports nothing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // 1: any offset, length and address. Else offset and length of each write_at but the one that ends the file, and every part's address and length, must be
  // multiples of it; the last write may be padded beyond expected_size_bytes and cut by truncate().
  virtual int64_t alignment() const = 0;
  // Writes the parts one after another from byte `offset` on, all of them.
  virtual void write_at(int64_t offset, std::span<const Bytes> parts) = 0;
  virtual void truncate(int64_t size_bytes) = 0;
  virtual void sync() = 0;   // content and size reach the disk
  virtual void close() = 0;  // releases it and reports a late error; idempotent
};

// An advisory lock held by this process until destroyed.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class Storage {
 public:
  virtual ~Storage() = default;

  virtual std::unique_ptr<ByteSource> open_read(const std::string& path) = 0;  // a regular file
  virtual std::unique_ptr<WritableFile> open_write(const std::string& path, const WriteFileOptions& options) = 0;  // created or emptied
  virtual std::optional<FileInfo> stat(const std::string& path) = 0;          // nullopt: nothing there
  virtual std::vector<FileInfo> list(const std::string& directory) = 0;       // sorted by name, without . and ..
  virtual void make_directory(const std::string& path) = 0;                   // parents must exist; an existing folder is no error
  virtual void rename(const std::string& from, const std::string& to) = 0;    // atomic; replaces a file, refuses a non-empty folder (kExists)
  // Exchanges two existing names atomically; returns false where the file system cannot.
  virtual bool exchange(const std::string& a, const std::string& b) = 0;
  virtual void remove_file(const std::string& path) = 0;  // an absent one is no error
  virtual void remove_tree(const std::string& path) = 0;  // a file or folder with all below it, never following links
  virtual void sync_directory(const std::string& path) = 0;
  // Takes the lock at `path` (created when absent); nullptr when another process, or another lock of this one, holds it.
  virtual std::unique_ptr<FileLock> try_lock(const std::string& path) = 0;
  virtual int64_t free_bytes(const std::string& path) = 0;  // for an unprivileged writer on the file system of `path`
};

// The operating system's files. One instance serves all.
std::shared_ptr<Storage> posix_storage();

// Files in memory, with the same contract; each call makes an empty one holding the folder "/".
std::shared_ptr<Storage> memory_storage();

// What a path or URI names.
struct StorageLocation {
  std::shared_ptr<Storage> storage;
  std::string path;
};

// Accepts plain paths, `file:PATH`, `file:///PATH`, and `faulty+file:PATH?fail=OP:N:ERRNO` (see storage/faulty.h). Throws ValueError(kUnsupported) for
// s3://, gs://, hdfs://, abfs:// and unknown schemes, with what to do instead. A path holding ':' before any '/' is a scheme only when it is one of the above
// or is followed by "//".
StorageLocation resolve_location(std::string_view path_or_uri);

// "dir/name" with exactly one slash between.
std::string join_path(std::string_view directory, std::string_view name);
// Last component, and the folder that holds it ("." when there is none). Trailing slashes are ignored.
std::string base_name(std::string_view path);
std::string parent_path(std::string_view path);

}  // namespace milepost
