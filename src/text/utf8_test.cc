#include "text/utf8.h"

#include <gtest/gtest.h>

namespace milepost::text {
namespace {

TEST(Utf8, FindsTheFirstByteThatIsNotValid) {
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("plain text \u00E9 \u6F22 \U0001F600"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("abc\xFF"), 3u);
  EXPECT_EQ(find_invalid_utf8("12345678\xC3"), 8u);
  for (const char* bad :
       {"\xC0\x80", "\xED\xA0\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\x80"}) {
    EXPECT_EQ(find_invalid_utf8(bad), 0u);
  }
}

TEST(Utf8, KnowsWhereTheLastWholeCharacterEnds) {
  EXPECT_EQ(whole_characters("ab"), 2u);
  EXPECT_EQ(whole_characters("ab\xE6"), 2u);
  EXPECT_EQ(whole_characters("ab\xE6\xBC"), 2u);
  EXPECT_EQ(whole_characters("ab\xE6\xBC\xA2"), 5u);
  EXPECT_EQ(whole_characters("\xF0\x9F\x98"), 0u);
}

TEST(Utf8, ReplacesEachLongestBeginningOnce) {
  EXPECT_EQ(replace_invalid_utf8("a\xE6\xBC"
                                 "b\xFF\xFF"),
            "a\uFFFDb\uFFFD\uFFFD");
}

TEST(Utf8, ByteAlphabetGoesThereAndBack) {
  for (int byte = 0; byte < 256; ++byte) {
    size_t at = 0;
    EXPECT_EQ(byte_of_character(next_code_point(byte_characters()[static_cast<size_t>(byte)], &at)), byte);
  }
  EXPECT_EQ(byte_of_character(U'\u6F22'), -1);
  EXPECT_EQ(byte_characters()[' '], "\u0120");
}

}  // namespace
}  // namespace milepost::text
