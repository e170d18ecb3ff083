#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::pickle {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;

// What reading throws: "code at offset: summary".
std::string refusal(std::string_view pickle, const Options& options = {}) {
  try {
    read(as_bytes(pickle), options, "dir/data.pkl");
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "dir/data.pkl");
    return std::string(error_code_name(error.code())) + " at " + std::to_string(error.offset()) + ": " +
           error.summary();
  }
  return "none";
}
TEST(PickleLimits, NestingIsLimited) {
  const auto nested = [](int depth) {
    std::string pickle(static_cast<size_t>(depth), ']');
    return pickle + std::string(static_cast<size_t>(depth - 1), 'a') + ".";
  };
  EXPECT_EQ(refusal(nested(1000)), "none");
  EXPECT_THAT(refusal(nested(1001)), HasSubstr("too_large at 2001: containers nest more than 1000 deep"));
  EXPECT_THAT(refusal(nested(300'000)), HasSubstr("too_large"));
  Options options;
  options.max_depth = 3;
  EXPECT_EQ(refusal("N\x85\x85\x85."s, options), "none");
  EXPECT_THAT(refusal("N\x85\x85\x85\x85."s, options), HasSubstr("more than 3 deep"));
  EXPECT_THAT(refusal("]q\0]q\1]q\2]q\3"s
                      "0000h\0h\1a0h\1h\2a0h\2h\3a0h\0."s,
                      options),
              HasSubstr("more than 3 deep"));
}

TEST(PickleLimits, DepthOfSharedTuplesIsTheLongestPath) {
  // t0 = (None,), t1 = (t0, t0), ... t40: 2^40 paths.
  std::string pickle = "N\x85";
  for (int i = 0; i < 40; ++i) pickle += "q\1h\1\x86";
  EXPECT_EQ(refusal(pickle + "."), "none");
  Options options;
  options.max_depth = 40;
  EXPECT_THAT(refusal(pickle + ".", options), HasSubstr("too_large"));
  EXPECT_THAT(refusal("}" + pickle + "K\1sK\2N\x86."),
              testing::AnyOf(HasSubstr("none"), HasSubstr("too_large")));
  EXPECT_THAT(refusal("}(" + pickle + "q\2K\1h\2\x85K\2u."), HasSubstr("none"))
      << "keys of different size differ at once";
}

TEST(PickleLimits, KeysThatTakeTooLongToCompareAreRefused) {
  std::string key = "N\x85";
  for (int i = 0; i < 40; ++i) key += "q\1h\1\x86";  // equal to a copy of itself, after 2^40 comparisons
  EXPECT_THAT(refusal("}(" + key + "K\1" + key + "K\2u."), HasSubstr("too_large"));
}

TEST(PickleLimits, MemoryIsLimited) {
  // A bytearray from bytes is a copy: 7 bytes of pickle for 1000.
  std::string pickle = "B\xe8\3\0\0"s + std::string(1000, 'x') +
                       "q\0"
                       "0cbuiltins\nbytearray\nq\1("s;
  for (int i = 0; i < 2000; ++i) pickle += "h\1h\0\x85R"s;
  EXPECT_THAT(refusal(pickle + "t."), HasSubstr("too_large"));
  Options options;
  options.max_memory_bytes = 64 << 20;
  EXPECT_EQ(refusal(pickle + "t.", options), "none");
  options.max_memory_bytes = 1000;
  EXPECT_THAT(refusal("\x8e\x00\x10\0\0\0\0\0\0"s + std::string(4096, 'x') + ".", options),
              HasSubstr("more than 1000 bytes"));
}

TEST(PickleLimits, DensePicklesStayWithinTheDefaultLimit) {
  for (const std::string& piece :
       {"]"s, "}"s, ")"s, "]Na"s, "}NNs"s, "N\x85"s, "]\x94"s, "}\x94"s, "\x8f"s, "\x8c\1a"s, "(d"s, "(l"s}) {
    std::string pickle = "\x80\4(";
    while (pickle.size() < 300'000) pickle += piece;
    EXPECT_EQ(refusal(pickle + "t."), "none") << piece;
  }
  EXPECT_EQ(refusal("\x80\4](" + std::string(300'000, 'N') + "e."), "none");
  std::string batches = "\x80\4]";
  for (int i = 0; i < 300; ++i) batches += "(" + std::string(1000, 'N') + "e";
  EXPECT_EQ(refusal(batches + "."), "none");
}

}  // namespace
}  // namespace milepost::pickle
