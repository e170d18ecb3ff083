#include "milepost/text/stream_encoder.h"

#include <gtest/gtest.h>

#include <random>

#include "milepost/base/error.h"

namespace milepost::text {
namespace {

std::shared_ptr<const Tokenizer> bundled(const std::string& name) {
  return Tokenizer::load(MILEPOST_TEST_DATA "/../assets/" + name);
}

std::vector<int32_t> encode(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  Encoder(tokenizer).encode(text, true, true, &ids);
  return ids;
}

std::string random_text(std::mt19937* random, size_t num_parts) {
  constexpr std::string_view kParts[] = {"word",
                                         " ",
                                         "  ",
                                         "\n",
                                         "\n\n",
                                         "1234",
                                         "漢字かな",
                                         "!?",
                                         "é",
                                         "e\u0301",
                                         "<|end_of_text|>",
                                         "<｜end▁of▁sentence｜>",
                                         "<｜end",
                                         "\U0001F600",
                                         "\t x"};
  std::string text;
  for (size_t i = 0; i < num_parts; ++i) text += kParts[(*random)() % std::size(kParts)];
  return text;
}

TEST(StreamEncoder, GivesTheIdsOfTheWholeWhereverPartsEnd) {
  std::mt19937 random(7);
  for (const char* name : {"tokenizer", "deepseek_v3"}) {
    const auto tokenizer = bundled(name);
    const std::string text = random_text(&random, 80000);
    const std::vector<int32_t> whole = encode(tokenizer, text);
    for (const size_t longest : {size_t{977}, size_t{100000}, text.size()}) {
      StreamEncoder stream(tokenizer, true, true);
      EXPECT_TRUE(stream.is_bounded());
      std::vector<int32_t> ids;
      for (size_t at = 0; at < text.size();) {
        const size_t size = 1 + random() % longest;
        stream.feed(std::string_view(text).substr(at, size), &ids);
        at += size;
      }
      EXPECT_GT(ids.size(), whole.size() / 2);
      stream.finish(&ids);
      EXPECT_EQ(ids, whole);
    }
  }
}

TEST(StreamEncoder, NamesTheOffsetOfBadBytesInTheWholeText) {
  StreamEncoder stream(bundled("deepseek_v3"), false, false);
  std::vector<int32_t> ids;
  for (int i = 0; i < 300; ++i) stream.feed(std::string(1000, 'x') + "\n", &ids);
  stream.feed("\xE6", &ids);
  try {
    stream.feed("x", &ids);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.offset(), 300 * 1001);
  }
}

TEST(StreamEncoder, RefusesATextThatEndsWithinACharacter) {
  StreamEncoder stream(bundled("deepseek_v3"), false, false);
  std::vector<int32_t> ids;
  stream.feed("ab\xE6\xBC", &ids);
  EXPECT_THROW(stream.finish(&ids), FormatError);
}

TEST(Encoder, AddsBosAndEosOnlyWhenAskedTo) {
  const auto tokenizer = bundled("tokenizer");
  std::vector<int32_t> ids;
  Encoder encoder(tokenizer);
  encoder.encode("Hello world", true, true, &ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{2002, 72, 101, 108, 108, 111, 119, 111, 114, 108, 100, 2003}));
  ids.clear();
  encoder.encode("", false, false, &ids);
  EXPECT_TRUE(ids.empty());
  encoder.encode("", true, false, &ids);
  EXPECT_EQ(ids, std::vector<int32_t>{2002});
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  const auto tokenizer = bundled("deepseek_v3");
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(tokenizer->eos_id(), 1);
  EXPECT_TRUE(tokenizer->default_add_bos());
  EXPECT_FALSE(tokenizer->default_add_eos());
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_LT(tokenizer->vocab_size(), 2048);
  EXPECT_TRUE(tokenizer->warnings().empty());
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 1}, true), "");
  EXPECT_NE(tokenizer->fingerprint(), bundled("tokenizer")->fingerprint());
  EXPECT_EQ(tokenizer->fingerprint(), bundled("deepseek_v3")->fingerprint());
}

}  // namespace
}  // namespace milepost::text
