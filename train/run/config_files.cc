#include "train/run/config_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

constexpr size_t kLargest = size_t{1} << 20;  // read into a document, text takes many times its size

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void fail(const char* what, const std::string& path) {
  const int number = errno;
  throw StorageError(number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, what, path, number);
}

}  // namespace

std::string read_config_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail("cannot open the configuration file", path);
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, count);
    if (text.size() > kLargest) {
      FormatError error(ErrorCode::kTooLarge, "a configuration file has at most 1 MiB");
      error.set_path(path);
      throw error;
    }
  }
  if (std::ferror(file.get())) fail("cannot read the configuration file", path);
  return text;
}

std::string write_config_file(const std::string& folder, const std::string& name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::error_code code;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
  if (code) {
    throw StorageError(ErrorCode::kIo, "cannot make the folder of the configuration file",
                       path.parent_path().string(), code.value());
  }
  const std::string staged = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  {
    const File file(std::fopen(staged.c_str(), "wb"));
    if (!file) fail("cannot write the configuration file", staged);
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0) {
      const int number = errno;
      ::unlink(staged.c_str());
      errno = number;
      fail("cannot write the configuration file", staged);
    }
  }
  if (std::rename(staged.c_str(), path.c_str()) != 0) {
    const int number = errno;
    ::unlink(staged.c_str());
    errno = number;
    fail("cannot write the configuration file", path.string());
  }
  return path.string();
}

}  // namespace milepost::train
