#include "milepost/base/bytes.h"

#include <fmt/format.h>

#include <cstring>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

[[noreturn]] void throw_truncated(const std::string& name, int64_t offset, size_t want, int64_t size) {
  StorageError error(ErrorCode::kTruncated,
                     fmt::format("cannot read {} bytes: it ends at byte {}", want, size), name);
  error.set_offset(offset);
  throw error;
}

}  // namespace

void MemorySource::read_at(int64_t offset, MutableBytes dst) const {
  if (!range_fits(offset, static_cast<int64_t>(dst.size()), size())) {
    throw_truncated(name_, offset, dst.size(), size());
  }
  if (!dst.empty()) std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
}

SliceSource::SliceSource(std::shared_ptr<const ByteSource> whole, int64_t offset, int64_t length)
    : whole_(std::move(whole)), offset_(offset), length_(length) {
  if (!range_fits(offset, length, whole_->size())) {
    FormatError error(
        ErrorCode::kOutOfBounds,
        fmt::format("{} bytes from here on leave the file, which has {}", length, whole_->size()));
    error.set_path(whole_->name()).set_offset(offset);
    throw error;
  }
}

void SliceSource::read_at(int64_t offset, MutableBytes dst) const {
  if (!range_fits(offset, static_cast<int64_t>(dst.size()), length_)) {
    int64_t in_whole = -1;  // left unsaid where there is no such byte
    if (offset < 0 || !checked_add(offset_, offset, &in_whole)) in_whole = -1;
    throw_truncated(name(), in_whole, dst.size(), offset_ + length_);
  }
  whole_->read_at(offset_ + offset, dst);
}

const std::byte* SliceSource::data() const {
  const std::byte* whole = whole_->data();
  return whole == nullptr ? nullptr : whole + offset_;
}

ByteVector read_all(const ByteSource& source, int64_t max_bytes) {
  if (source.size() > max_bytes) {
    FormatError error(ErrorCode::kTooLarge,
                      fmt::format("{} bytes are more than the {} allowed here", source.size(), max_bytes));
    error.set_path(source.name());
    throw error;
  }
  ByteVector bytes(static_cast<size_t>(source.size()));
  source.read_at(0, bytes);
  return bytes;
}

}  // namespace milepost
