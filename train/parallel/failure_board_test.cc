#include "train/parallel/failure_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>

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
