#include "milepost/manager/background.h"

#include <gtest/gtest.h>

#include <atomic>
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
