// Storage: the operations on files that a checkpoint needs, over posix folders, memory (tests) or a wrapper
// that fails on purpose.
//
// Paths are absolute or relative to the process, '/'-separated, without NUL bytes. Links are followed except
// where a call says otherwise.
//
// Threads: all members may be called from any thread. What they return may outlive the Storage.
//
// Errors: StorageError with path and errno. A full disk or quota is kNoSpace, an absent file kNotFound, an
// occupied name kExists, everything else kIo. A call that throws has changed nothing, unless it says
// otherwise.
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
  // False for folders, and for sockets, devices, FIFOs and dangling links, which are never opened.
  bool is_regular = false;
  int64_t size_bytes = 0;  // of a regular file, else 0
  // When the content of a regular file was last changed, in nanoseconds since 1970, as the system says; 0
  // where it does not. Good for telling that a file is another than before, not for ordering.
  int64_t modified_ns = 0;
};

struct WriteFileOptions {
  // Final size when known. A file written directly is laid out at once, so that a full disk is reported
  // before the first byte is written and blocks from several threads need not wait for one another to extend
  // the file.
  int64_t expected_size_bytes = -1;
  // Go around the page cache where the file system can (O_DIRECT on a disk; never on tmpfs), else buffered.
  bool direct = true;
  // Leave what the file holds in place (and its size, but for the room that is laid out), so that parts of it
  // are kept; false: empty it first.
  bool keep_content = false;
};

// A file being written at offsets.
//
// Threads: write_at may be called from several threads at once on ranges that do not overlap; the other calls
// only when no write is in progress.
//
// Durability: nothing is promised before sync() has returned, and the file's name needs sync_directory() too.
// Destruction without close() abandons the file where it is and reports nothing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // A power of two. 1: any offset, length and address will do. Else (at most AlignedBuffer::kAlignment) the
  // offset of each write_at and the address and length of each part must be multiples of it: the end of the
  // file is written padded and cut by truncate(). Breaking this is a bug of the caller (assert; kIo in a
  // release build).
  virtual int64_t alignment() const = 0;
  // Writes the parts one after another from byte `offset` on, all of them. After an exception the range holds
  // unspecified bytes. Cost: one system call where the system takes it all at once.
  virtual void write_at(int64_t offset, std::span<const Bytes> parts) = 0;
  virtual void truncate(int64_t size_bytes) = 0;
  virtual void sync() = 0;   // content and size reach the disk; after a failure what was written is lost
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

  // A regular file; anything else is refused (kIo), without waiting for a FIFO's writer. The source keeps the
  // file open, so that it stays readable when its name goes; its size is that of this moment, and its data()
  // is null.
  virtual std::unique_ptr<ByteSource> open_read(const std::string& path) = 0;
  // Created, or when it is there emptied, unless options.keep_content.
  virtual std::unique_ptr<WritableFile> open_write(const std::string& path,
                                                   const WriteFileOptions& options) = 0;

  virtual std::optional<FileInfo> stat(const std::string& path) = 0;  // nullopt: nothing there
  // Sorted by name (bytes), without . and ..; a dangling link is listed as not regular. Costs a stat each.
  virtual std::vector<FileInfo> list(const std::string& directory) = 0;

  // Parents must exist; an existing folder is no error.
  virtual void make_directory(const std::string& path) = 0;
  // Atomic. A file replaces a file, but nothing replaces a folder, and a folder replaces nothing (kExists). A
  // link is itself renamed or replaced.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Exchanges two existing names atomically, whatever they name; false where the file system cannot.
  virtual bool exchange(const std::string& a, const std::string& b) = 0;

  // An absent one is no error; a link is itself removed.
  virtual void remove_file(const std::string& path) = 0;
  // An empty folder; returns false, and removes nothing, when it is absent or not empty. So whoever comes
  // between is noticed, unlike with remove_tree.
  virtual bool remove_directory(const std::string& path) = 0;
  // A file or folder with all below it; an absent one is no error. Links are removed, never followed. After
  // an exception part of it may be gone.
  virtual void remove_tree(const std::string& path) = 0;

  // Names made, renamed and removed in this folder reach the disk.
  virtual void sync_directory(const std::string& path) = 0;

  // Takes the lock at `path` (created when absent); nullptr when another process, or another lock of this
  // one, holds it. It dies with the process. What is locked is the file at `path` at the time of return: a
  // holder may remove it, and nobody else should. File systems without locks grant every lock.
  virtual std::unique_ptr<FileLock> try_lock(const std::string& path) = 0;

  // For an unprivileged writer on the file system of `path`.
  virtual int64_t free_bytes(const std::string& path) = 0;
};

// The operating system's files. One instance serves all.
std::shared_ptr<Storage> posix_storage();

// Files in memory, with the same contract; each call makes an empty one holding the folder "/", from which
// relative paths start.
std::shared_ptr<Storage> memory_storage();

// What a path or URI names.
struct StorageLocation {
  std::shared_ptr<Storage> storage;
  std::string path;
};

// Accepts plain paths, `file:PATH`, `file:///PATH`, and `faulty+file:PATH?fail=OP:N:ERRNO` (see
// storage/faulty.h; each call makes a new wrapper, whose counts start at 0). Percent signs are kept as they
// are. Throws ValueError: kUnsupported for s3://, gs://, hdfs://, abfs:// and unknown schemes, with what to
// do instead; kBadArgument for an empty path or one with a NUL byte. A path holding ':' before any '/' is a
// scheme only when it is one of the above or is followed by "//".
StorageLocation resolve_location(std::string_view path_or_uri);

// "dir/name" with exactly one slash between; `name` alone when `directory` is empty.
std::string join_path(std::string_view directory, std::string_view name);
// Last component ("" for "/"), and the folder that holds it ("." when there is none). Trailing slashes are
// ignored.
std::string base_name(std::string_view path);
std::string parent_path(std::string_view path);

// Whether `path` names `folder` itself or something below it, however the two are spelt (relative, "..",
// "./"); links are not followed. Paths of one storage.
bool lies_within(std::string_view path, std::string_view folder);

}  // namespace milepost
