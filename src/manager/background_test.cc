#include "milepost/manager/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>

namespace milepost::manager {
namespace {

TEST(Background, RunsBesideItsCaller) {
  Background background;
  std::promise<void> go;
  std::atomic<bool> done{false};
  background.start([&, wait = go.get_future().share()] {
    wait.wait();
    done = true;
  });
  EXPECT_TRUE(background.is_running());
  EXPECT_NO_THROW(background.check());
  EXPECT_FALSE(done);
  go.set_value();
  background.wait();
  EXPECT_TRUE(done);
  EXPECT_FALSE(background.is_running());
}

TEST(Background, TellsAnErrorOnce) {
  Background background;
  background.start([] { throw std::runtime_error("no room"); });
  EXPECT_THROW(background.wait(), std::runtime_error);
  EXPECT_NO_THROW(background.wait());
  background.start([] { throw std::runtime_error("no room"); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool told = false;
  while (!told && std::chrono::steady_clock::now() < deadline) {
    try {
      background.check();
    } catch (const std::runtime_error&) {
      told = true;
    }
  }
  EXPECT_TRUE(told);
  EXPECT_NO_THROW(background.check());
}

TEST(Background, WaitsForItsWorkAtItsEnd) {
  std::atomic<bool> done{false};
  {
    Background background;
    background.start([&] {
      lower_priority();
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace milepost::manager
