#include "train/parallel/buffer_pool.h"

#include <gtest/gtest.h>

namespace milepost::train {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

TEST(BufferPool, GivesTheSameMemoryAgain) {
  BufferPool pool;
  const void* first = pool.take(8 * kMib, at::kCPU).get();
  EXPECT_EQ(pool.take(7 * kMib, at::kCPU).get(), first);
}

TEST(BufferPool, GivesMemoryInUseToNobodyElse) {
  BufferPool pool;
  const at::DataPtr a = pool.take(kMib, at::kCPU), b = pool.take(kMib, at::kCPU);
  EXPECT_NE(a.get(), b.get());
}

TEST(BufferPool, DoesNotSpendLargeBuffersOnSmallWishes) {
  BufferPool pool;
  const void* large = pool.take(64 * kMib, at::kCPU).get();
  const at::DataPtr small = pool.take(kMib, at::kCPU);
  EXPECT_NE(small.get(), large);
  EXPECT_EQ(pool.take(64 * kMib, at::kCPU).get(), large);
}

TEST(BufferPool, TensorsOutliveIt) {
  at::Tensor tensor;
  {
    BufferPool pool;
    tensor = pool.empty({3, 5}, at::kFloat);
  }
  tensor.fill_(2);
  EXPECT_EQ(tensor.sum().item<float>(), 30);
  EXPECT_TRUE(tensor.is_contiguous());
}

TEST(BufferPool, HasEmptyTensors) {
  BufferPool pool;
  EXPECT_EQ(pool.empty({0, 4}, at::kBFloat16).numel(), 0);
}

}  // namespace
}  // namespace milepost::train
