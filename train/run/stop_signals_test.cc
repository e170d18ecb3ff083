#include "train/run/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace milepost::train {
namespace {

TEST(StopSignals, ASecondSignalEndsAtOnceUnlessALauncherMayHaveSentIt) {
  EXPECT_FALSE(ends_at_once(SIGINT, 0));
  EXPECT_FALSE(ends_at_once(SIGINT, 999));
  EXPECT_TRUE(ends_at_once(SIGINT, 1000));
  EXPECT_FALSE(ends_at_once(SIGTERM, 1000));
  EXPECT_FALSE(ends_at_once(SIGTERM, 4999));
  EXPECT_TRUE(ends_at_once(SIGTERM, 5000));
  EXPECT_FALSE(ends_at_once(SIGUSR1, 3'600'000));
}

TEST(StopSignals, TheFirstOneIsNotedAndTheSameWishAgainChangesNothing) {
  const StopSignals signals;
  EXPECT_EQ(StopSignals::received(), 0);
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  std::raise(SIGINT);
  EXPECT_EQ(StopSignals::received(), SIGUSR1);
  EXPECT_EQ(StopSignals::name(SIGUSR1), "SIGUSR1");
}

}  // namespace
}  // namespace milepost::train
