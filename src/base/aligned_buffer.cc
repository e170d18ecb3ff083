#include "milepost/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "milepost/base/checked_math.h"

namespace milepost {
namespace {

#if defined(__SANITIZE_ADDRESS__)

// From the heap, around which the sanitizer sees writes.
std::byte* allocate(int64_t size) {
  return static_cast<std::byte*>(std::aligned_alloc(AlignedBuffer::kAlignment, static_cast<size_t>(size)));
}
void release(std::byte* data, int64_t) { std::free(data); }

#else

constexpr int64_t kHugePage = int64_t{2} << 20;

// At a multiple of a huge page's size where it holds one. Null: there is no memory.
std::byte* allocate(int64_t size) {
  const int64_t alignment = size < kHugePage ? AlignedBuffer::kAlignment : kHugePage;
  const auto mapped = static_cast<size_t>(size + alignment - AlignedBuffer::kAlignment);
  void* const begin = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const auto before = static_cast<size_t>(round_up(static_cast<int64_t>(address), alignment)) - address;
  const size_t after = mapped - before - static_cast<size_t>(size);
  auto* const data = static_cast<std::byte*>(begin) + before;
  if (before > 0) ::munmap(begin, before);
  if (after > 0) ::munmap(data + size, after);
  if (alignment == kHugePage) ::madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
  return data;
}
void release(std::byte* data, int64_t size) { ::munmap(data, static_cast<size_t>(size)); }

#endif

}  // namespace

AlignedBuffer::AlignedBuffer(int64_t size) : size_(round_up(size, kAlignment)) {
  if (size_ == 0) return;
  data_ = allocate(size_);
  if (data_ == nullptr) throw std::bad_alloc();
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) release(data_, size_);
}

}  // namespace milepost
