#include "config/python_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "config/box.h"
#include "config/nearest.h"
#include "milepost/base/error.h"

namespace milepost::config {
namespace {

TEST(PythonText, ReadsTheLimitsOfIntegers) {
  EXPECT_EQ(parse_int("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse_int("\t9_223_372_036_854_775_807\n"), std::numeric_limits<int64_t>::max());
  EXPECT_THROW(parse_int("9223372036854775808"), ValueError);
  for (const char* text : {"", " ", "-", "+-1", "1 2", "1,000", "١"})
    EXPECT_THROW(parse_int(text), ValueError) << text;
}

TEST(PythonText, ReadsFloats) {
  EXPECT_EQ(parse_float("1e-08"), 1e-8);
  EXPECT_EQ(parse_float(" +.5 "), 0.5);
  EXPECT_EQ(parse_float("5."), 5.0);
  EXPECT_EQ(parse_float("1e999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_float("-Infinity"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(parse_float("NaN")));
  for (const char* text : {"", "--1", "1 2", "e5", ".", "1f", "infinit"})
    EXPECT_THROW(parse_float(text), ValueError) << text;
}

TEST(PythonText, WritesFloatsAsRepr) {
  EXPECT_EQ(float_repr(1), "1.0");
  EXPECT_EQ(float_repr(0.0008), "0.0008");
  EXPECT_EQ(float_repr(1e-8), "1e-08");
  EXPECT_EQ(float_repr(2.2e-4), "0.00022");
  EXPECT_EQ(float_repr(8e-5), "8e-05");
  EXPECT_EQ(float_repr(1e16), "1e+16");
  EXPECT_EQ(float_repr(std::numeric_limits<double>::infinity()), "inf");
}

TEST(PythonText, QuotesTextsAsRepr) {
  EXPECT_EQ(string_repr("x"), "'x'");
  EXPECT_EQ(string_repr("it's"), "\"it's\"");
  EXPECT_EQ(string_repr("'\"\\\n\x01"), "'\\'\"\\\\\\n\\x01'");
}

TEST(Box, WrapsAtSpacesAndInsideLongWords) {
  EXPECT_EQ(wrap("a bb ccc", 4), (std::vector<std::string>{"a bb", "ccc"}));
  EXPECT_EQ(wrap("abcdefgh i", 3), (std::vector<std::string>{"abc", "def", "gh", "i"}));
  EXPECT_EQ(wrap("ä ö ü", 3), (std::vector<std::string>{"ä ö", "ü"}));
  EXPECT_EQ(wrap("a\n\nb", 9), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(wrap("", 9), (std::vector<std::string>{""}));
}

TEST(Box, IsAsWideAsItsLines) {
  Box box("Title");
  box.add("some text");
  box.add_rule();
  box.add("x", 2);
  EXPECT_EQ(box.text(false), "╭─ Title ───╮\n│ some text │\n│ ───────── │\n│   x       │\n╰───────────╯\n");
}

TEST(Nearest, FindsTheNameThatWasMeant) {
  EXPECT_EQ(nearest("async_mod", {"folder", "async_mode", "enable"}), "async_mode");
  EXPECT_EQ(nearest("zzz", {"folder", "enable"}), "");
  EXPECT_EQ(nearest(std::string(1000000, 'a'), {"a"}), "");
  EXPECT_EQ(likeness("", ""), 1);
}

}  // namespace
}  // namespace milepost::config
