#include "train/parallel/failure_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "train/parallel/rank_threads.h"

namespace milepost::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Degrees two() {
  Degrees degrees;
  degrees.dp_shard = 2;
  return degrees;
}

void never(const std::string& reason) { FAIL() << reason; }

TEST(FailureBoard, TheReasonOfOneRankIsReadByOthers) {
  run_ranks(two(), [](ProcessGroups& groups) {
    FailureBoard board(groups.store(), groups.mesh().rank(), 2, never);
    if (groups.mesh().rank() == 0) return board.fail("no data");
    EXPECT_EQ(board.fail_after_others({0, 1}), "no data");
  });
}

TEST(FailureBoard, ARankWithoutAWordIsNamed) {
  run_ranks(two(), [](ProcessGroups& groups) {
    if (groups.mesh().rank() == 1) {
      groups.store()->set("host/1", "node7");  // and no more, as one that is killed
      return;
    }
    FailureBoard board(groups.store(), 0, 2, never);
    groups.store()->get("host/1", std::chrono::seconds(10));
    EXPECT_EQ(board.fail_after_others({0, 1}), "Rank 1 on node7 does not answer: killed, or hanging");
  });
}

TEST(FailureBoard, ARankThatWaitsElsewhereIsToldByItsWatch) {
  run_ranks(two(), [](ProcessGroups& groups) {
    std::promise<std::string> told;
    FailureBoard board(groups.store(), groups.mesh().rank(), 2,
                       [&](const std::string& reason) { told.set_value(reason); });
    if (groups.mesh().rank() == 1) return board.fail("no data");
    EXPECT_EQ(told.get_future().get(), "no data");
  });
}

TEST(FailureBoard, RanksStopAfterTheLastStepThatOneOfThemIsSureOf) {
  run_ranks(two(), [](ProcessGroups& groups) {
    const int64_t rank = groups.mesh().rank();
    std::promise<void> heard;
    FailureBoard board(groups.store(), rank, 2, never, [&] { heard.set_value(); });
    if (rank == 0) heard.get_future().wait();  // of rank 1, which was asked
    std::string fault;
    const auto stop = board.agree_on_stop({rank == 0 ? 0 : SIGTERM, rank == 0 ? 7 : 6}, &fault);
    if (rank == 1) heard.get_future().wait();
    ASSERT_TRUE(stop) << fault;
    EXPECT_EQ(stop->step, 7);
    EXPECT_EQ(stop->signal, SIGTERM);
  });
}

TEST(FailureBoard, ARankThatGivesNoStepIsNamedToAllOthers) {
  Degrees three;
  three.dp_shard = 3;
  run_ranks(three, [](ProcessGroups& groups) {
    const int64_t rank = groups.mesh().rank();
    if (rank == 1) {
      groups.store()->set("host/1", "node7");  // and no more, as one that hangs
      return;
    }
    FailureBoard board(groups.store(), rank, 3, [](const std::string&) {});
    groups.store()->get("host/1", std::chrono::seconds(10));
    std::string fault;
    EXPECT_FALSE(board.agree_on_stop({SIGTERM, 5}, &fault));
    EXPECT_EQ(fault, "Rank 1 on node7 does not answer: killed, or hanging");
  });
}

// A store of this process, which does on a call what a test wants.
class TestStore final : public JobStore {
 public:
  std::function<void(const std::string& key)> on_look, on_add;

  TestStore() { set("host/0", "node0"); }

  void set(const std::string& key, const std::string& value) override {
    const std::scoped_lock lock(mutex_);
    values_[key] = value;
  }
  std::string get(const std::string& key, std::chrono::milliseconds /*timeout*/) override {
    const std::scoped_lock lock(mutex_);
    return values_.at(key);
  }
  bool has(const std::string& key) override {
    if (on_look) on_look(key);
    const std::scoped_lock lock(mutex_);
    return values_.contains(key);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    if (on_add) on_add(key);
    const std::scoped_lock lock(mutex_);
    return counts_[key] += amount;
  }
  bool is_rank_0s() const override { return true; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;  // GUARDED_BY(mutex_)
  std::map<std::string, int64_t> counts_;      // GUARDED_BY(mutex_)
};

void leave_reason(JobStore& store, const std::string& reason) {
  store.set("failure/reason", reason);
  store.set("news", "");
}

TEST(FailureBoard, TheWatchGoesOnAfterALookThatFails) {
  const auto store = std::make_shared<TestStore>();
  std::atomic<int> num_looks = 0;
  store->on_look = [&](const std::string&) {
    if (++num_looks == 1) throw CommunicationError("the store is busy");
    if (num_looks == 2) throw std::bad_alloc();
  };
  std::promise<std::string> told;
  FailureBoard board(store, 1, 2, [&](const std::string& reason) { told.set_value(reason); });
  leave_reason(*store, "no data");
  EXPECT_EQ(told.get_future().get(), "no data");
}

// The watch reads a reason, and tells rank 0's store so, while the run ends in the ordinary way.
TEST(FailureBoard, ABoardThatIsGoneEndsNothing) {
  const auto store = std::make_shared<TestStore>();
  std::promise<void> has_read, may_go_on;
  store->on_add = [&, is_first = true](const std::string&) mutable {
    if (!std::exchange(is_first, false)) return;
    has_read.set_value();
    may_go_on.get_future().wait();
  };
  leave_reason(*store, "no data");
  {
    const FailureBoard board(store, 1, 2, never);
    has_read.get_future().wait();
  }
  may_go_on.set_value();
  while (store.use_count() > 1) std::this_thread::yield();  // until the watch has ended
}

TEST(FailureBoard, AStoreThatFailsOtherwiseIsSaidToHaveFailed) {
  const auto store = std::make_shared<TestStore>();
  store->on_look = [](const std::string&) { throw std::runtime_error("out of sockets"); };
  FailureBoard board(store, 1, 2, never);
  std::string fault;
  EXPECT_FALSE(board.agree_on_stop({SIGTERM, 5}, &fault));
  EXPECT_EQ(fault, "It could not be found out: out of sockets");
}

TEST(ProcessGroups, RanksOnDevicesThatThisBuildCannotConnectAreRefused) {
  const DeviceMesh mesh(two(), 0);
  EXPECT_THROW(ProcessGroups::join(mesh, at::Device(at::kMPS, 0), std::chrono::seconds(1)), ValueError);
#ifndef USE_C10D_NCCL
  try {
    ProcessGroups::join(mesh, at::Device(at::kCUDA, 0), std::chrono::seconds(1));
    ADD_FAILURE() << "joined";
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("2 ranks on cuda:0"), HasSubstr("no NCCL")));
  }
#endif
}

}  // namespace
}  // namespace milepost::train
