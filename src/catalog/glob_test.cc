#include <gtest/gtest.h>

#include <string>

#include "milepost/catalog/layout.h"

namespace milepost {
namespace {

TEST(Glob, WithoutWildcardsIsTheNameItself) {
  EXPECT_TRUE(glob_match("layers.0.weight", "layers.0.weight"));
  EXPECT_FALSE(glob_match("layers.0.weight", "layers.0.weights"));
  EXPECT_FALSE(glob_match("layers.0.weight", "layers.0.weigh"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
}

TEST(Glob, StarMatchesAnyRunDotsIncluded) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*", "a.b.c"));
  EXPECT_TRUE(glob_match("layers.*.weight", "layers.0.attention.wq.weight"));
  EXPECT_FALSE(glob_match("layers.*.weight", "layers.weight"));
  EXPECT_TRUE(glob_match("*.weight", "a.weight.weight"));
  EXPECT_FALSE(glob_match("*.weight", "a.weight.bias"));
  EXPECT_TRUE(glob_match("a**b", "ab"));
  EXPECT_TRUE(glob_match("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(glob_match("*a*b*", "xxbxxaxx"));
}

TEST(Glob, QuestionMarkMatchesOneCharacter) {
  EXPECT_TRUE(glob_match("layers.?.weight", "layers.7.weight"));
  EXPECT_FALSE(glob_match("layers.?.weight", "layers.17.weight"));
  EXPECT_FALSE(glob_match("?", ""));
  EXPECT_TRUE(glob_match("a?c", "aéc")) << "two bytes, one character";
  EXPECT_TRUE(glob_match("a?c", "a🙂c"));
  EXPECT_TRUE(glob_match("a?c",
                         "a\xff"
                         "c"))
      << "a byte that is not UTF-8";
  EXPECT_TRUE(glob_match("a??", "a\xe2\x98")) << "cut short";
}

TEST(Glob, BracketsMatchOneOfASet) {
  EXPECT_TRUE(glob_match("w[123]", "w2"));
  EXPECT_FALSE(glob_match("w[123]", "w4"));
  EXPECT_TRUE(glob_match("layers.[0-9].w", "layers.5.w"));
  EXPECT_TRUE(glob_match("layers.[1-3][0-9].w", "layers.25.w"));
  EXPECT_FALSE(glob_match("layers.[1-3][0-9].w", "layers.45.w"));
  EXPECT_TRUE(glob_match("w[!12]", "w3"));
  EXPECT_FALSE(glob_match("w[!12]", "w1"));
  EXPECT_FALSE(glob_match("w[!12]", "w"));
  EXPECT_TRUE(glob_match("[]x]", "]"));
  EXPECT_TRUE(glob_match("[a-]", "-"));
  EXPECT_TRUE(glob_match("[α-ω]", "λ"));
  EXPECT_FALSE(glob_match("[α-ω]", "l"));
  EXPECT_FALSE(glob_match("[*]", "x")) << "no wildcard inside";
}

TEST(Glob, BracesMatchAnyAlternative) {
  EXPECT_TRUE(glob_match("{wq,wk,wv}.weight", "wk.weight"));
  EXPECT_FALSE(glob_match("{wq,wk,wv}.weight", "wo.weight"));
  EXPECT_TRUE(glob_match("a{,.b}", "a"));
  EXPECT_TRUE(glob_match("a{,.b}", "a.b"));
  EXPECT_TRUE(glob_match("{layers.*,norm}.weight", "layers.0.wq.weight"));
  EXPECT_TRUE(glob_match("x{a{b,c}d,e}y", "xacdy"));
  EXPECT_TRUE(glob_match("x{a{b,c}d,e}y", "xey"));
  EXPECT_FALSE(glob_match("x{a{b,c}d,e}y", "xady"));
  EXPECT_TRUE(glob_match("{ab,a}{c,bc}", "abc"));
  EXPECT_TRUE(glob_match("{one}", "one"));
}

TEST(Glob, UnclosedBracketsAndBracesStandForThemselves) {
  EXPECT_TRUE(glob_match("a[b", "a[b"));
  EXPECT_TRUE(glob_match("a[", "a["));
  EXPECT_TRUE(glob_match("a[!", "a[!"));
  EXPECT_TRUE(glob_match("a{b,c", "a{b,c"));
  EXPECT_TRUE(glob_match("a}b,c", "a}b,c"));
  EXPECT_TRUE(glob_match("{a{b,c}", "{ab"));
  EXPECT_TRUE(glob_match("{a[}],b}*", "b")) << "a brace inside brackets closes nothing";
}

TEST(Glob, BackslashTakesTheNextCharacterAsItIs) {
  EXPECT_TRUE(glob_match("a\\*b", "a*b"));
  EXPECT_FALSE(glob_match("a\\*b", "axb"));
  EXPECT_TRUE(glob_match("\\{a,b\\}", "{a,b}"));
  EXPECT_TRUE(glob_match("a\\", "a\\"));
}

TEST(Glob, NeverTakesExponentialTime) {
  std::string stars, braces;
  for (int i = 0; i < 100; ++i) stars += "a*";
  EXPECT_FALSE(glob_match(stars + "b", std::string(1000, 'a')));
  for (int i = 0; i < 60; ++i) braces += "{a,aa,*}";
  EXPECT_FALSE(glob_match(braces + "b", std::string(600, 'a')));
  EXPECT_FALSE(glob_match(std::string(100000, '{') + "a" + std::string(100000, '}'), "b"));
  EXPECT_TRUE(glob_match(std::string(2000, '['), std::string(2000, '[')));
}

}  // namespace
}  // namespace milepost
