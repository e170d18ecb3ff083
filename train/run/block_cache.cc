#include "train/run/block_cache.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace milepost::train {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

BlockCache& BlockCache::instance() {
  // Never destroyed: tensors of static storage may outlive everything.
  static auto* cache = new BlockCache(*c10::GetDefaultCPUAllocator());
  return *cache;
}

void cache_large_blocks() { c10::SetCPUAllocator(&BlockCache::instance()); }

c10::DataPtr BlockCache::allocate(size_t num_bytes) {
  if (num_bytes < kSmallest) return small_.allocate(num_bytes);
  void* data = take(num_bytes);
  return {data, data, raw_deleter(), at::Device(at::kCPU)};
}

// oneDNN's memory comes and goes by raw pointers, of any size.
c10::DeleterFnPtr BlockCache::raw_deleter() const {
  return [](void* data) {
    if (data != nullptr && !instance().take_back(data)) instance().small_.raw_deleter()(data);
  };
}

void* BlockCache::take(size_t num_bytes) {
  const size_t size = round_up(num_bytes, kPage);
  const std::lock_guard lock(mutex_);
  const auto fit = by_size_.lower_bound(size);
  Block block{};
  if (fit != by_size_.end() && fit->first <= size + size / 8) {
    block = *fit->second;
    waiting_.erase(fit->second);
    by_size_.erase(fit);
    bytes_waiting_ -= block.size;
  } else {
    block = {::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), size};
    if (block.data == MAP_FAILED) throw std::bad_alloc();
    if (size >= 4 * kHugePage) ::madvise(block.data, size, MADV_HUGEPAGE);
  }
  in_use_[block.data] = block.size;
  bytes_in_use_ += block.size;
  most_in_use_ = std::max(most_in_use_, bytes_in_use_);
  shrink();
  return block.data;
}

bool BlockCache::take_back(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(data);
  if (found == in_use_.end()) return false;
  const Block block{data, found->second};
  in_use_.erase(found);
  bytes_in_use_ -= block.size;
  bytes_waiting_ += block.size;
  by_size_.emplace(block.size, waiting_.insert(waiting_.end(), block));
  shrink();
  return true;
}

void BlockCache::shrink() {
  const size_t most = most_in_use_ + most_in_use_ / 8;
  while (!waiting_.empty() && bytes_in_use_ + bytes_waiting_ > most) {
    const auto oldest = waiting_.begin();
    const auto [first, last] = by_size_.equal_range(oldest->size);
    by_size_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == oldest; }));
    bytes_waiting_ -= oldest->size;
    ::munmap(oldest->data, oldest->size);
    waiting_.erase(oldest);
  }
}

void BlockCache::copy_data(void* to, const void* from, size_t num_bytes) const {
  default_copy_data(to, from, num_bytes);
}

int64_t BlockCache::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(bytes_in_use_);
}

int64_t BlockCache::bytes_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(bytes_waiting_);
}

}  // namespace milepost::train
