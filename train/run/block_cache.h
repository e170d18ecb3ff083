// BlockCache: host memory of large tensors, kept from one use to the next.
//
// A step allocates and frees the same sizes as the step before. From the heap, large blocks leave holes that
// hold more memory than the tensors; mapped apart, each touch of a fresh page costs as much as the arithmetic
// on it. So freed blocks wait for the next that fits, as in the caching allocators of GPUs. Blocks of less
// than kSmallest bytes are libtorch's own allocator's.
//
// Cost in memory: a block has up to an eighth more than was asked for; what waits is released, oldest first,
// as soon as it and what is in use exceed the most that was ever in use by more than an eighth.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

#include "train/torch.h"

namespace milepost::train {

// Threads: any.
class BlockCache final : public c10::Allocator {
 public:
  static constexpr size_t kSmallest = size_t{256} << 10;
  // Of the process; lives as long as it.
  static BlockCache& instance();

  // Throws std::bad_alloc where the system has no more.
  c10::DataPtr allocate(size_t num_bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t num_bytes) const override;

  int64_t bytes_in_use() const;
  int64_t bytes_waiting() const;

 private:
  explicit BlockCache(c10::Allocator& small) : small_(small) {}
  struct Block {
    void* data;
    size_t size;
  };
  bool take_back(void* data);  // false: it is none of the cache's
  void* take(size_t num_bytes);
  void shrink();

  c10::Allocator& small_;
  mutable std::mutex mutex_;
  // GUARDED_BY(mutex_)
  std::unordered_map<void*, size_t> in_use_;
  std::list<Block> waiting_;  // oldest first
  std::multimap<size_t, std::list<Block>::iterator> by_size_;
  size_t bytes_in_use_ = 0, bytes_waiting_ = 0, most_in_use_ = 0;
};

// From now on libtorch has its host memory from BlockCache::instance(). May be called again.
void cache_large_blocks();

}  // namespace milepost::train
