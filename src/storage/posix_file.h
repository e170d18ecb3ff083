// Open files of the operating system: descriptor, source, writable file.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "milepost/storage/storage.h"

namespace milepost {

// Owns a file descriptor; -1 for none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::unique_ptr<ByteSource> open_posix_source(const std::string& path);
std::unique_ptr<WritableFile> open_posix_writable(const std::string& path, const WriteFileOptions& options);

}  // namespace milepost
