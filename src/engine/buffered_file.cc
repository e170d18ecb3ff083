#include "engine/buffered_file.h"

namespace milepost {
namespace {
constexpr size_t kBufferBytes = 1 << 20;
}

BufferedFile::BufferedFile(Storage& storage, const std::string& path, Sha256* hash)
    : file_(storage.open_write(path, {.expected_size_bytes = -1, .direct = false})), hash_(hash) {}

void BufferedFile::append(Bytes bytes) {
  if (hash_ != nullptr) hash_->update(bytes);
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    file_->write_at(written_, {&bytes, 1});
    written_ += static_cast<int64_t>(bytes.size());
    return;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void BufferedFile::flush() {
  if (buffer_.empty()) return;
  const Bytes bytes = buffer_;
  file_->write_at(written_, {&bytes, 1});
  written_ += static_cast<int64_t>(bytes.size());
  buffer_.clear();
}

void BufferedFile::finish(bool sync) {
  flush();
  if (sync) file_->sync();
  file_->close();
}

}  // namespace milepost
