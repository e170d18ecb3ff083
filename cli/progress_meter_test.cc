#include "progress_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace milepost::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ProgressLine, ShowsBytesRateAndTimeLeft) {
  EXPECT_THAT(progress_line("convert", 250'000'000, 1'000'000'000, 0.5, 200),
              AllOf(HasSubstr("convert"), HasSubstr("25 %"), HasSubstr("250.0 MB of 1.00 GB"),
                    HasSubstr("500.0 MB/s"), HasSubstr("1.50 s left")));
}

TEST(ProgressLine, FitsTheTerminal) {
  EXPECT_LT(progress_line("convert", 1, 2, 1, 40).size(), 40u);
  EXPECT_FALSE(progress_line("convert", 1, 2, 1, 0).empty());
}

TEST(ProgressLine, ManagesWithoutATotalAndBeyondIt) {
  EXPECT_THAT(progress_line("x", 5000, 0, 0, 80), AllOf(HasSubstr("5.00 kB"), Not(HasSubstr("%"))));
  EXPECT_THAT(progress_line("x", 3, 2, 1, 80), AllOf(HasSubstr("100 %"), Not(HasSubstr("left"))));
}

TEST(ProgressMeter, CancelsOnASignalAndSaysWhich) {
  const Terminal terminal(true);
  {
    ProgressMeter meter(terminal, "test");
    EXPECT_FALSE(meter.progress()->cancel);
    raise(SIGTERM);
    EXPECT_TRUE(meter.progress()->cancel);
    EXPECT_GT(meter.peak_anonymous_bytes(), 0);
  }
  EXPECT_EQ(Interrupt::signal_received(), SIGTERM);
}

TEST(Wrapped, BreaksAtSpaces) {
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("extraordinary a", 4), "extraordinary\na");
  EXPECT_EQ(wrapped("", 4), "");
}

}  // namespace
}  // namespace milepost::cli
