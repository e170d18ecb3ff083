#include "milepost/data/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_data.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kDocuments = TokenCache::kFileDocuments + 100;

class TokenCacheTest : public testing::Test {
 protected:
  TokenCacheTest() {
    std::string lines;
    for (int64_t i = 0; i < kDocuments; ++i) {
      lines += i == 7 ? "{\"no text\": 1}\n" : "{\"text\": \"" + std::to_string(i * i) + "\"}\n";
    }
    write_file(*storage, "/data.jsonl", lines);
  }

  std::unique_ptr<EncodingSource> source(int64_t vocab_size = 258) {
    DocumentEncoder encoder = byte_encoder();
    encoder.vocab_size = vocab_size;
    encoder.fingerprint += std::to_string(vocab_size);
    encoder.encode = [this, inner = encoder.encode](std::string_view text, std::vector<int32_t>* ids) {
      ++num_encoded;
      inner(text, ids);
    };
    return std::make_unique<EncodingSource>(
        std::make_unique<Documents>(storage, std::vector<std::string>{"/data.jsonl"}, DocumentOptions{}),
        encoder, OnBadRecord::kSkip);
  }
  std::unique_ptr<TokenCache> cache(int64_t vocab_size = 258) {
    return std::make_unique<TokenCache>(storage, "/cache/tokens", source(vocab_size));
  }

  static std::vector<int32_t> read(TokenSource& from, int64_t document) {
    std::vector<int32_t> ids;
    from.append(document, &ids);
    return ids;
  }

  void expect_all_equal(TokenSource& a) {
    const auto plain = source();
    for (int64_t i = 0; i < kDocuments; ++i) ASSERT_EQ(read(a, i), read(*plain, i)) << i;
  }
  int64_t encoded_by(const std::function<void()>& f) {
    const int64_t before = num_encoded;
    f();
    return num_encoded - before;
  }
  std::string first_file() { return cache()->folder() + "/00000000.tokens"; }

  std::shared_ptr<Storage> storage = memory_storage();
  int64_t num_encoded = 0;
};

TEST_F(TokenCacheTest, FillsWhileItIsReadAndIsReadAfterwards) {
  expect_all_equal(*cache());
  const auto again = cache();
  EXPECT_EQ(encoded_by([&] {
              for (int64_t i = 0; i < kDocuments; ++i) read(*again, i);
            }),
            0);
  expect_all_equal(*again);
  EXPECT_EQ(again->num_skipped(), 2);  // document 7, twice
}

TEST_F(TokenCacheTest, KeepsWideIdsAsTheyAre) {
  const auto wide = cache(100000);
  wide->build();
  expect_all_equal(*wide);
}

TEST_F(TokenCacheTest, KeepsWhatAKilledProcessHadFinished) {
  {
    const auto killed = cache();
    for (int64_t i = 0; i < TokenCache::kFileDocuments + 50; ++i) read(*killed, i);
  }
  EXPECT_EQ(encoded_by([&] { cache()->build(); }), 100);
  EXPECT_THAT(storage->list(cache()->folder()), SizeIs(2));
}

TEST_F(TokenCacheTest, EncodesAWholeFileWhenDocumentsComeOutOfOrder) {
  const auto shuffled = cache();
  const auto plain = source();
  for (int64_t i : {4000, 12, 4100, 13, 5}) EXPECT_EQ(read(*shuffled, i), read(*plain, i));
  EXPECT_EQ(encoded_by([&] { read(*shuffled, 4001); }), 0);
}

TEST_F(TokenCacheTest, OthersEncodeForThemselvesWhileAFileIsBeingMade) {
  const auto maker = cache(), other = cache();
  read(*maker, 0);
  const auto plain = source();
  EXPECT_EQ(read(*other, 3), read(*plain, 3));
  for (int64_t i = 1; i < TokenCache::kFileDocuments; ++i) read(*maker, i);
  EXPECT_EQ(encoded_by([&] { read(*other, 4); }), 0);
}

TEST_F(TokenCacheTest, MakesADamagedFileAgainWithAWarning) {
  cache()->build();
  const std::string path = first_file();
  ByteVector whole;
  {
    const auto file = storage->open_read(path);
    whole = read_all(*file, file->size());
  }
  const auto expect_repaired = [&](const ByteVector& damaged, const char* where) {
    write_file(*storage, path, as_text(damaged));
    const auto reader = cache();
    expect_all_equal(*reader);
    EXPECT_THAT(reader->take_warnings(), testing::Contains(HasSubstr(path))) << where;
    EXPECT_THAT(cache()->take_warnings(), IsEmpty());
  };
  for (size_t at : {size_t{0}, size_t{9}, size_t{30}, size_t{60}, size_t{100}, size_t{80 + 8 * 4096 + 11},
                    whole.size() - 1}) {
    ByteVector damaged = whole;
    damaged[at] ^= std::byte{4};
    expect_repaired(damaged, std::to_string(at).c_str());
  }
  expect_repaired({whole.begin(), whole.end() - 2}, "cut");
  expect_repaired({whole.begin(), whole.begin() + 40}, "cut in the head");
  expect_repaired({}, "empty");
}

TEST_F(TokenCacheTest, RefusesIdsBeyondWhatTheTokenizerSaysOfItself) {
  try {
    cache(200)->build();
    FAIL() << "no error";
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/data.jsonl: line 1"), HasSubstr("token id 256")));
  }
}

TEST_F(TokenCacheTest, AnotherTokenizerOrDataGetsAnotherKey) {
  const std::string folder = cache()->folder();
  EXPECT_EQ(folder, cache()->folder());
  EXPECT_NE(folder, cache(300)->folder());
  write_file(*storage, "/data.jsonl", "{\"text\": \"other\"}\n");
  EXPECT_NE(folder, cache()->folder());
}

}  // namespace
}  // namespace milepost::data
