#include "text/regex.h"

#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "text/regex_syntax.h"

namespace milepost::text {
namespace {

// The matches, each in brackets, within the text.
std::string marked(std::string_view pattern, std::string_view text) {
  const Regex regex = Regex::oniguruma(pattern);
  RegexScratch scratch;
  MatchWalk walk(regex, text, &scratch);
  std::string result;
  MatchRange range;
  while (walk.next(&range)) {
    const std::string part(text.substr(range.begin, range.end - range.begin));
    result += range.is_match ? "[" + part + "]" : part;
  }
  return result;
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(marked("^b$", "a\nb\nc"), "a\n[b]\nc");
  EXPECT_EQ(marked("(?m)a.b", "a\nb"), "[a\nb]");
  EXPECT_EQ(marked("a.b", "a\nb"), "a\nb");
  EXPECT_EQ(marked("\\h+", "xdeadBEEFx"), "x[deadBEEF]x");
  EXPECT_EQ(marked("[\\h]", "g1"), "g[1]");
  EXPECT_EQ(marked("\\s+", "a\u0085\u2028 b\u180E"), "a[\u0085\u2028 ]b\u180E");
  EXPECT_EQ(marked("[^\\s]", " \u180E"), " [\u180E]");
  EXPECT_EQ(marked("\\w+", "e\u0301_1-"), "[e\u0301_1]-");
  EXPECT_EQ(marked("\\p{Han}", "。漢"), "。[漢]");
  EXPECT_EQ(marked("\\p{^Letter}", "a1"), "a[1]");
  EXPECT_EQ(marked("[[:alpha:]]+", "ab1"), "[ab]1");
  EXPECT_EQ(marked("a{,2}b", "aaab"), "a[aab]");
  EXPECT_EQ(marked("{a}", "{a}"), "[{a}]");
  EXPECT_EQ(marked("\\u6f22", "漢"), "[漢]");
  EXPECT_EQ(marked("x*", "axb"), "[]a[x]b[]");
}

TEST(Regex, KnowsCharactersThatAreNewerThanItsTables) {
  EXPECT_EQ(marked("\\p{S}", "\U0001FAE8"), "[\U0001FAE8]");
  EXPECT_EQ(marked("\\p{L}", "\U00010D50"), "[\U00010D50]");
}

TEST(Regex, RefusesWhatItCannotSay) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", "(?~a)", "(*UTF)", "a{2}+", "a{2}?", "\\Qa\\E", "(?(1)a)",
                              "\\xE9", "\\", "[a", "\\p{L", "(?W)a", "\\G", "(?i:ss)"}) {
    EXPECT_THROW(Regex::oniguruma(pattern), FormatError) << pattern;
  }
  for (const char* pattern : {"(a", "a)", "*", "\\p{NoSuchScript}", "[z-a]", "(?<=a*)b"}) {
    EXPECT_THROW(Regex::oniguruma(pattern), FormatError) << pattern;
  }
}

TEST(Regex, GivesUpInsteadOfHanging) {
  const std::string text = std::string(5000, 'a') + "c";
  EXPECT_THROW(marked("(a+)+(a+)+(a+)+$x|(?:(?:a|a)*)*b", text), FormatError);
}

TEST(Regex, SaysWhenTextToComeCouldChangeAMatch) {
  const Regex regex = Regex::oniguruma("\\s+(?!\\S)|\\s+|\\S+");
  RegexScratch scratch;
  TextRange match;
  EXPECT_EQ(regex.find("ab ", 0, true, &scratch, &match), Regex::Outcome::kFound);
  EXPECT_EQ(match.end, 2u);
  EXPECT_EQ(regex.find("ab ", 2, true, &scratch, &match), Regex::Outcome::kUndecided);
  EXPECT_TRUE(regex.is_resumable());
  EXPECT_FALSE(Regex::oniguruma("(?<=a)b").is_resumable());
  EXPECT_FALSE(Regex::oniguruma("a*").is_resumable());
}

}  // namespace
}  // namespace milepost::text
