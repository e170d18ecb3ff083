#include "milepost/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/test_data.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kLines = "{\"text\": \"a\"}\n{\"text\": 5}\n{\"text\": \"b\"}\n{\"no\": 1}\n";

std::unique_ptr<EncodingSource> open(const std::shared_ptr<Storage>& storage, OnBadRecord on_bad_record) {
  write_file(*storage, "/a.jsonl", kLines);
  return std::make_unique<EncodingSource>(
      std::make_unique<Documents>(storage, std::vector<std::string>{"/a.jsonl"}, DocumentOptions{}),
      byte_encoder(), on_bad_record);
}

TEST(EncodingSource, FailsAtABadRecord) {
  const auto source = open(memory_storage(), OnBadRecord::kFail);
  std::vector<int32_t> ids;
  source->append(0, &ids);
  EXPECT_THAT(ids, ElementsAre(256, 'a', 257));
  EXPECT_THROW(source->append(1, &ids), FormatError);
  source->append(2, &ids);
  EXPECT_THAT(ids, ElementsAre(256, 'a', 257, 256, 'b', 257));
}

TEST(EncodingSource, PassesBadRecordsOverAndCountsThem) {
  const auto source = open(memory_storage(), OnBadRecord::kSkip);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < source->size(); ++i) source->append(i, &ids);
  EXPECT_THAT(ids, ElementsAre(256, 'a', 257, 256, 'b', 257));
  EXPECT_EQ(source->num_skipped(), 2);
  EXPECT_THAT(source->take_warnings(),
              ElementsAre(HasSubstr("/a.jsonl: line 2"), HasSubstr("/a.jsonl: line 4")));
  EXPECT_TRUE(source->take_warnings().empty());
}

TEST(EncodingSource, NamesTheDocumentWhoseTextDoesNotEncode) {
  const auto storage = memory_storage();
  write_file(*storage, "/a.jsonl", kLines);
  DocumentEncoder encoder = byte_encoder();
  encoder.encode = [](std::string_view, std::vector<int32_t>* ids) {
    ids->push_back(1);
    throw FormatError(ErrorCode::kBadFormat, "invalid UTF-8");
  };
  EncodingSource source(
      std::make_unique<Documents>(storage, std::vector<std::string>{"/a.jsonl"}, DocumentOptions{}), encoder,
      OnBadRecord::kSkip);
  std::vector<int32_t> ids;
  source.append(2, &ids);
  EXPECT_TRUE(ids.empty());
  EXPECT_THAT(source.take_warnings(), ElementsAre(HasSubstr("/a.jsonl: line 3: invalid UTF-8")));
}

std::unique_ptr<TokenSource> numbers(int first, int count) {
  std::vector<std::vector<int32_t>> documents;
  for (int i = 0; i < count; ++i) documents.push_back({first + i});
  return std::make_unique<ListSource>(documents);
}

std::vector<int32_t> interleaved(const std::vector<int>& counts, const std::vector<double>& weights,
                                 StoppingStrategy strategy) {
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (size_t i = 0; i < counts.size(); ++i) sources.push_back(numbers(static_cast<int>(i) * 100, counts[i]));
  InterleavedSource source(std::move(sources), weights, 42, strategy);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < source.size(); ++i) source.append(i, &ids);
  return ids;
}

// The draws of default_rng(42).choice(3, p=[.5, .3, .2]) begin 1 0 2 1 0 2 1 1 0 0 0 2 1 2 0 0 1 0 2 1.
TEST(InterleavedSource, StopsWhenTheFirstSourceIsExhausted) {
  EXPECT_THAT(interleaved({9, 9, 2}, {5, 3, 2}, StoppingStrategy::kOnFirstExhausted),
              ElementsAre(100, 0, 200, 101, 1, 201));
}

TEST(InterleavedSource, StartsSourcesOverUntilAllAreExhausted) {
  EXPECT_THAT(interleaved({3, 6, 2}, {5, 3, 2}, StoppingStrategy::kAllExhausted),
              ElementsAre(100, 0, 200, 101, 1, 201, 102, 103, 2, 0, 1, 200, 104, 201, 2, 0, 105));
}

TEST(InterleavedSource, RefusesWeightsThatMeanNothing) {
  const auto strategy = StoppingStrategy::kAllExhausted;
  EXPECT_THROW(interleaved({3, 3}, {1, 0}, strategy), ValueError);
  EXPECT_THROW(interleaved({3, 3}, {1, -1}, strategy), ValueError);
  EXPECT_THROW(interleaved({3, 3}, {1, NAN}, strategy), ValueError);
  EXPECT_THROW(interleaved({3, 3}, {1}, strategy), ValueError);
  EXPECT_THROW(interleaved({3, 0}, {1, 1}, strategy), ValueError);
  EXPECT_THROW(interleaved({}, {}, strategy), ValueError);
}

TEST(InterleavedSource, RefusesEndlessRepetition) {
  EXPECT_THROW(interleaved({3, 3}, {1, 1e-9}, StoppingStrategy::kAllExhausted), ValueError);
}

}  // namespace
}  // namespace milepost::data
