#include "format/dcp_token_reader.h"

#include <gtest/gtest.h>

namespace milepost::dcp {
namespace {

using namespace std::string_literals;

class Reader {
 public:
  explicit Reader(std::string bytes)
      : bytes_(std::move(bytes)), source_(as_bytes(bytes_), "test"), reader_(source_) {}
  TokenReader* operator->() { return &reader_; }

 private:
  std::string bytes_;
  MemorySource source_;
  TokenReader reader_;
};

TEST(TokenReader, ReadsIntegersOfEveryWidth) {
  Reader reader(
      "K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x00\x8a\x01\x80\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s
      "\x8a\x09"s);
  for (int64_t expected : {int64_t{255}, int64_t{65535}, int64_t{-1}, int64_t{0}, int64_t{-128}, INT64_MIN}) {
    EXPECT_EQ(reader->integer(), expected);
  }
  EXPECT_THROW(reader->integer(), Unusual);  // 9 bytes
}

TEST(TokenReader, RemembersWhatItsCallerSays) {
  Reader reader("\x94\x94h\x00h\x01j\x00\x00\x00\x00h\x02"s);
  reader->memoize({Tag::kOffsets, 5});
  const int64_t second = reader->memoize();
  reader->patch(second, {Tag::kTensor, 7});
  Token token;
  ASSERT_TRUE(reader->take_get(&token));
  EXPECT_EQ(token, Token(Tag::kOffsets, 5));
  ASSERT_TRUE(reader->take_get(&token));
  EXPECT_EQ(token, Token(Tag::kTensor, 7));
  ASSERT_TRUE(reader->take_get(&token));
  EXPECT_EQ(token, Token(Tag::kOffsets, 5));
  EXPECT_THROW(reader->take_get(&token), Unusual);  // nothing is stored there
}

TEST(TokenReader, RefusesMemoNumbersOutOfOrder) {
  Reader in_order("q\x00r\x01\x00\x00\x00"s);
  EXPECT_EQ(in_order->memoize(), 0);
  EXPECT_EQ(in_order->memoize(), 1);
  Reader ahead("q\x01"s);
  EXPECT_THROW(ahead->memoize(), Unusual);
}

TEST(TokenReader, ReadsAcrossWindows) {
  // Texts of which some straddle the end of a window, and one that is longer than a window.
  std::string bytes;
  std::vector<std::string> texts;
  for (size_t i = 0; i < 3000; ++i) {
    texts.emplace_back(i == 1000 ? 3'000'000 : 1000 + i % 7, static_cast<char>('a' + i % 26));
    const auto length = static_cast<uint32_t>(texts.back().size());
    bytes += 'X';
    bytes.append(reinterpret_cast<const char*>(&length), 4);
    bytes += texts.back();
  }
  Reader reader(bytes + "X\xff\xff\xff\x7f");
  for (const std::string& text : texts) ASSERT_EQ(reader->raw_text(), text);
  EXPECT_THROW(reader->raw_text(), Unusual);  // longer than the source
}

TEST(TokenReader, PassesOverFramesWhereTheLastEnds) {
  Reader reader("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00NN\x95\x01\x00\x00\x00\x00\x00\x00\x00N\x95"s);
  reader->expect_protocol();
  for (int i = 0; i < 3; ++i) reader->expect(pickle::kOpNone);
  EXPECT_THROW(reader->expect(pickle::kOpNone), Unusual);  // a frame that is cut short
}

TEST(TokenReader, RefusesFramesLongerThanTheSource) {
  Reader reader("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N"s);
  reader->expect_protocol();
  EXPECT_THROW(reader->peek(), Unusual);
}

TEST(TokenReader, EndsAtTheEndOfTheSource) {
  Reader reader("N"s);
  reader->expect(pickle::kOpNone);
  EXPECT_THROW(reader->peek(), Unusual);
  Reader cut("J\x01"s);
  cut->integer();  // from the padding, but nothing comes after it
  EXPECT_THROW(cut->peek(), Unusual);
  Reader empty(""s);
  EXPECT_THROW(empty->peek(), Unusual);
}

TEST(TokenReader, KnowsClassesByGlobalAndByStackGlobal) {
  Reader reader("ctorch\nSize\n\x8c\x05torch\x94\x8c\x08"s + "bfloat16\x94\x93\x94h\x02"s + "cos\nsystem\n"s);
  EXPECT_TRUE(reader->global().is(Class::kSize));
  const Token dtype = reader->global();
  EXPECT_EQ(dtype, Token(Tag::kDType, static_cast<int64_t>(DType::kBFloat16)));
  EXPECT_EQ(reader->global(), dtype);
  EXPECT_THROW(reader->global(), Unusual);
}

}  // namespace
}  // namespace milepost::dcp
