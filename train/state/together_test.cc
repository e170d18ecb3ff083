#include "train/state/together.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "milepost/base/error.h"
#include "train/parallel/rank_threads.h"

namespace milepost::train {
namespace {

Degrees two() {
  Degrees degrees;
  degrees.dp_replicate = 2;
  return degrees;
}

TEST(Together, ResultsOfAllRanksComeInOrder) {
  run_ranks(two(), [](ProcessGroups& groups) {
    const Together ranks(&groups);
    const std::string own = ranks.is_first() ? "a" : "b";
    EXPECT_EQ(ranks.gather([&] { return own; }), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(ranks.first([&] { return own; }), "a");
  });
}

TEST(Together, AnErrorOfOneRankIsThrownOnAllAndKnownToAll) {
  run_ranks(two(), [](ProcessGroups& groups) {
    const Together ranks(&groups);
    try {
      ranks.all([&] {
        if (!ranks.is_first()) throw StorageError(ErrorCode::kNoSpace, "no room", "/disk");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const StorageError&) {
      EXPECT_FALSE(ranks.is_first());
      EXPECT_TRUE(ranks.is_known_to_all(std::current_exception()));
    } catch (const CommunicationError& error) {
      EXPECT_TRUE(ranks.is_first());
      EXPECT_STREQ(error.what(), "rank 1 failed: /disk: no room");
      EXPECT_TRUE(ranks.is_known_to_all(std::current_exception()));
    }
  });
}

TEST(Together, WhatIsThrownOutsideIsKnownToThisRankAlone) {
  run_ranks(two(), [](ProcessGroups& groups) {
    const Together ranks(&groups), others(&groups);
    EXPECT_THROW(ranks.all([] { throw std::runtime_error("everywhere"); }), std::runtime_error);
    try {
      throw std::runtime_error("here");
    } catch (const std::exception&) {
      EXPECT_FALSE(ranks.is_known_to_all(std::current_exception()));
      EXPECT_FALSE(others.is_known_to_all(std::current_exception()));
      EXPECT_TRUE(Together(nullptr).is_known_to_all(std::current_exception()));
    }
  });
}

}  // namespace
}  // namespace milepost::train
