#include "train/run/torch_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "train/torch.h"

namespace milepost::train {
namespace {

TEST(ThrowReadable, MemoryThatIsNotThereIsBadAlloc) {
  try {
    at::empty({int64_t{1} << 60}, at::kByte);
    FAIL() << "2^60 bytes were there";
  } catch (const c10::Error& error) {
    EXPECT_THROW(throw_readable(error), std::bad_alloc);
  }
}

TEST(ThrowReadable, OtherErrorsKeepTheirTextWithoutFrames) {
  try {
    at::ones({2}).add(at::ones({3}));
    FAIL() << "shapes fit";
  } catch (const c10::Error& error) {
    try {
      throw_readable(error);
    } catch (const std::runtime_error& readable) {
      EXPECT_THAT(readable.what(), testing::HasSubstr("must match"));
      EXPECT_THAT(readable.what(), testing::Not(testing::HasSubstr("frame #")));
    }
  }
}

TEST(ReadableText, IsWithoutFramesToo) {
  EXPECT_EQ(readable_text(std::runtime_error("plain")), "plain");
  try {
    at::ones({2}).add(at::ones({3}));
    FAIL() << "shapes fit";
  } catch (const std::exception& error) {
    EXPECT_THAT(readable_text(error), testing::HasSubstr("must match"));
    EXPECT_THAT(readable_text(error), testing::Not(testing::HasSubstr("frame #")));
  }
}

}  // namespace
}  // namespace milepost::train
