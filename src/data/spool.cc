#include <unistd.h>

#include <atomic>

#include "data/record_files.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string new_name() {
  static std::atomic<int64_t> number{0};
  return ".milepost-spool-" + std::to_string(getpid()) + "-" + std::to_string(number++);
}

}  // namespace

Spool::Spool(std::shared_ptr<Storage> storage, const std::string& folder)
    : storage_(std::move(storage)), path_(join_path(folder, new_name())) {
  file_ = storage_->open_write(path_, {.expected_size_bytes = -1, .direct = false});
}

Spool::~Spool() {
  if (!file_) return;
  try {
    file_.reset();
    storage_->remove_file(path_);
  } catch (const Error&) {
    // What is left is debris in a temporary folder; whatever ended the unpacking is the error to report.
  }
}

void Spool::append(std::string_view bytes) {
  buffer_.append(bytes);
  size_ += static_cast<int64_t>(bytes.size());
  if (buffer_.size() >= kBufferBytes) flush();
}

void Spool::flush() {
  const Bytes bytes = as_bytes(buffer_);
  file_->write_at(written_, {&bytes, 1});
  written_ = size_;
  buffer_.clear();
}

std::shared_ptr<const ByteSource> Spool::finish() {
  if (!buffer_.empty()) flush();
  file_->close();
  std::shared_ptr<const ByteSource> source = storage_->open_read(path_);
  storage_->remove_file(path_);
  file_.reset();
  return source;
}

}  // namespace milepost::data
