#include "milepost/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "milepost/base/aligned_buffer.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

class ThreadPoolOf : public testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolOf, HasThatManyThreads) { EXPECT_EQ(pool_.num_threads(), GetParam()); }

TEST_P(ThreadPoolOf, RunsEveryTaskOnce) {
  for (int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    pool_.run(count, [&](int64_t index, int) { ++calls[static_cast<size_t>(index)]; });
    for (const auto& number : calls) ASSERT_EQ(number, 1);
  }
}

TEST_P(ThreadPoolOf, GivesEachWorkerOneTaskAtATime) {
  std::vector<std::atomic<int>> busy(static_cast<size_t>(pool_.num_threads()));
  std::atomic<bool> overlapped{false}, out_of_range{false};
  pool_.run(2000, [&](int64_t, int worker) {
    if (worker < 0 || worker >= pool_.num_threads()) {
      out_of_range = true;
      return;
    }
    auto& mine = busy[static_cast<size_t>(worker)];
    if (mine.fetch_add(1) != 0) overlapped = true;
    mine.fetch_sub(1);
  });
  EXPECT_FALSE(overlapped);
  EXPECT_FALSE(out_of_range);
}

TEST_P(ThreadPoolOf, MakesResultsVisibleToTheCaller) {
  std::vector<int64_t> squares(5000);
  pool_.run(5000, [&](int64_t i, int) { squares[static_cast<size_t>(i)] = i * i; });
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], i * i);
}

TEST_P(ThreadPoolOf, RethrowsTheLowestFailure) {
  for (int round = 0; round < 50; ++round) {
    try {
      pool_.run(500, [](int64_t index, int) {
        if (index % 7 == 3) throw std::runtime_error(std::to_string(index));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "3");
    }
  }
}

TEST_P(ThreadPoolOf, KeepsTheClassOfAnError) {
  EXPECT_THROW(pool_.run(3, [](int64_t, int) { throw FormatError(ErrorCode::kHole, "gap"); }), FormatError);
}

TEST_P(ThreadPoolOf, WorksAgainAfterAFailure) {
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool_.run(10, [](int64_t, int) { throw std::runtime_error("x"); }), std::runtime_error);
    std::atomic<int> calls{0};
    pool_.run(10, [&](int64_t, int) { ++calls; });
    ASSERT_EQ(calls, 10);
  }
}

TEST(ThreadPool, WithOneThreadRunsInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<int64_t> order;
  pool.run(5, [&](int64_t index, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(index);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, SkipsTasksAfterAFailure) {
  ThreadPool pool(1);
  int64_t last = -1;
  const auto fail_at_ten = [&](int64_t index, int) {
    last = index;
    if (index == 10) throw std::runtime_error("stop");
  };
  EXPECT_THROW(pool.run(100, fail_at_ten), std::runtime_error);
  EXPECT_EQ(last, 10);
}

TEST(ThreadPool, MayBeDestroyedUnused) {
  for (int round = 0; round < 100; ++round) ThreadPool pool(4);
}

TEST(DefaultNumThreads, IsBetweenOneAndSixteen) {
  EXPECT_GE(default_num_threads(), 1);
  EXPECT_LE(default_num_threads(), 16);
}

TEST(AlignedBuffer, IsAlignedAndRoundedUp) {
  const AlignedBuffer buffer(5000);
  EXPECT_EQ(buffer.size(), 8192);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0u);
  EXPECT_EQ(buffer.span().size(), 8192u);
}

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer first(1);
  std::byte* const data = first.data();
  AlignedBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  AlignedBuffer third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), AlignedBuffer::kAlignment);
}

}  // namespace
}  // namespace milepost
