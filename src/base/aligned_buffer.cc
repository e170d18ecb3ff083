#include "milepost/base/aligned_buffer.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "milepost/base/checked_math.h"

namespace milepost {

AlignedBuffer::AlignedBuffer(int64_t size) : size_(round_up(size, kAlignment)) {
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(size_)));
  if (data_ == nullptr && size_ > 0) throw std::bad_alloc();
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

}  // namespace milepost
