#include "train/run/block_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace milepost::train {
namespace {

TEST(BlockCache, GivesAFreedBlockToTheNextThatFits) {
  BlockCache& cache = BlockCache::instance();
  const int64_t before = cache.bytes_in_use();
  void* first = nullptr;
  {
    const c10::DataPtr block = cache.allocate(8'000'000), other = cache.allocate(30'000'000);
    first = block.get();
    EXPECT_GE(cache.bytes_in_use() - before, 38'000'000);
  }
  EXPECT_EQ(cache.bytes_in_use(), before);
  EXPECT_GE(cache.bytes_waiting(), 38'000'000);
  EXPECT_EQ(cache.allocate(7'500'000).get(), first);
  EXPECT_NE(cache.allocate(4'000'000).get(), first);
}

TEST(BlockCache, KeepsAnEighthMoreThanWasEverInUse) {
  BlockCache& cache = BlockCache::instance();
  int64_t most = 0;
  for (size_t size = 1 << 20; size < (40 << 20); size += 1 << 20) {
    const c10::DataPtr block = cache.allocate(size);
    std::memset(block.get(), 1, size);
    most = std::max(most, cache.bytes_in_use());
  }
  EXPECT_LE(cache.bytes_in_use() + cache.bytes_waiting(), std::max<int64_t>(most, 100'000'000) * 9 / 8);
}

TEST(BlockCache, ServesRawPointersOfAnySize) {
  BlockCache& cache = BlockCache::instance();
  for (const size_t size : {size_t{1}, size_t{1000}, BlockCache::kSmallest, size_t{5} << 20}) {
    void* data = cache.raw_allocate(size);
    std::memset(data, 1, size);
    cache.raw_deallocate(data);
  }
}

// Blocks in use never overlap, whichever threads take and free them.
TEST(BlockCache, MayBeUsedByManyThreads) {
  BlockCache& cache = BlockCache::instance();
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<c10::DataPtr, size_t>> blocks;
    for (int i = 0; i < 300; ++i) {
      const size_t size = (size_t{200} << 10) + random() % (1 << 20);
      blocks.emplace_back(cache.allocate(size), size);
      std::memset(blocks.back().first.get(), static_cast<int>(seed), size);
      if (blocks.size() < 8) continue;
      const size_t which = random() % blocks.size();
      const auto* bytes = static_cast<const unsigned char*>(blocks[which].first.get());
      ASSERT_EQ(bytes[0], seed);
      ASSERT_EQ(bytes[blocks[which].second - 1], seed);
      blocks.erase(blocks.begin() + static_cast<int64_t>(which));
    }
  };
  std::thread one(work, 1), two(work, 2);
  work(3);
  one.join();
  two.join();
}

TEST(BlockCache, IsWhereTensorsComeFromOnceInstalled) {
  c10::Allocator* const usual = c10::GetAllocator(at::kCPU);
  cache_large_blocks();
  const int64_t before = BlockCache::instance().bytes_in_use();
  const at::Tensor tensor = at::ones({1 << 20});
  EXPECT_GE(BlockCache::instance().bytes_in_use() - before, 4 << 20);
  EXPECT_EQ(at::linear(tensor.view({1024, 1024}), tensor.view({1024, 1024}))[3][4].item<float>(), 1024);
  c10::SetAllocator(at::kCPU, usual);
}

}  // namespace
}  // namespace milepost::train
