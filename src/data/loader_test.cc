#include "milepost/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "data/test_data.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LoaderOptions small(int64_t rank = 0, int64_t world = 1) {
  return {.dataset = "numbers", .local_batch_size = 2, .seq_len = 16, .dp_rank = rank, .dp_world = world};
}

std::string text_of(const std::vector<Message>& messages) {
  std::string text;
  for (const Message& message : messages) text += (message.is_warning ? "W " : "I ") + message.text + "\n";
  return text;
}

template <typename F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Loader, KeepsTheIncompleteLastBatchOfFiniteData) {
  LoaderOptions options = small();
  options.infinite = false;
  const auto loader = list_loader(numbered_documents({30, 30}), options);  // 58 tokens: 3 rows
  EXPECT_EQ(loader->next()->rows, 2);
  const std::optional<Batch> last = loader->next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->rows, 1);
  EXPECT_EQ(last->inputs.size(), 16u);
  EXPECT_FALSE(loader->next());
  EXPECT_FALSE(loader->next());
  EXPECT_EQ(text_of(loader->take_messages()), "W Dataset numbers has run out of data\n");
}

TEST(Loader, StartsOverWithAWarning) {
  const auto loader = list_loader(numbered_documents({30, 30}), small());
  loader->next();
  loader->next();
  EXPECT_EQ(text_of(loader->take_messages()), "W Dataset numbers is being re-looped (epoch 1)\n");
}

TEST(Loader, EveryRowStartsAtPositionZero) {
  const auto loader = list_loader(numbered_documents(mixed_lengths(50)), small());
  for (int i = 0; i < 100; ++i) {
    const Batch batch = *loader->next();
    for (int64_t row = 0; row < batch.rows; ++row) {
      EXPECT_EQ(batch.positions[static_cast<size_t>(row * batch.seq_len)], 0);
    }
    for (int64_t position : batch.positions) EXPECT_LT(position, batch.seq_len);
  }
}

TEST(Loader, GoesOnExactlyFromAnyBatch) {
  for (int64_t world = 1; world <= 8; ++world) {
    for (DataOrder order : {DataOrder::kTorchTitan, DataOrder::kGlobal}) {
      LoaderOptions options = small(world - 1, world);
      options.order = order;
      const auto documents = numbered_documents(mixed_lengths(60));
      const auto loader = list_loader(documents, options);
      for (int64_t i = 0; i < 3 * world; ++i) loader->next();
      const auto resumed = list_loader(documents, options);
      resumed->set_state(loader->state());
      for (int i = 0; i < 20; ++i) EXPECT_EQ(loader->next()->inputs, resumed->next()->inputs);
      EXPECT_EQ(loader->state(), resumed->state());
    }
  }
}

// The rows of a global batch, put together from all ranks.
std::vector<int64_t> global_rows(int64_t world, int64_t rows_per_batch, int64_t num_batches) {
  const auto documents = numbered_documents(mixed_lengths(40));
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int64_t rank = 0; rank < world; ++rank) {
    LoaderOptions options = small(rank, world);
    options.order = DataOrder::kGlobal;
    options.local_batch_size = rows_per_batch;
    loaders.push_back(list_loader(documents, options));
  }
  std::vector<int64_t> all;
  for (int64_t i = 0; i < num_batches; ++i) {
    for (const auto& loader : loaders) {
      const Batch batch = *loader->next();
      all.insert(all.end(), batch.inputs.begin(), batch.inputs.end());
      all.insert(all.end(), batch.positions.begin(), batch.positions.end());
    }
  }
  return all;
}

TEST(Loader, GlobalOrderGivesTheSameRowsOnAnyNumberOfRanks) {
  const std::vector<int64_t> on_one = global_rows(1, 1, 96);
  for (int64_t world : {2, 3, 4, 6, 8, 12}) EXPECT_EQ(global_rows(world, 1, 96 / world), on_one) << world;
}

TEST(Loader, GlobalStatesAreEqualOnAllRanks) {
  const auto documents = numbered_documents(mixed_lengths(40));
  std::vector<LoaderState> states;
  for (int64_t rank = 0; rank < 3; ++rank) {
    LoaderOptions options = small(rank, 3);
    options.order = DataOrder::kGlobal;
    const auto loader = list_loader(documents, options);
    for (int i = 0; i < 5; ++i) loader->next();
    states.push_back(loader->state());
  }
  EXPECT_EQ(states[0], states[1]);
  EXPECT_EQ(states[0], states[2]);
}

TEST(Loader, RefusesIdsBeyondTheModelsVocabulary) {
  LoaderOptions options = small();
  options.model_vocab_size = 1005;
  const auto loader = list_loader(numbered_documents({10, 10, 30}), options);
  EXPECT_THAT(message_of([&] { loader->next(); }),
              AllOf(HasSubstr("document 1"), HasSubstr("token id 1005"), HasSubstr("vocabulary of 1005")));
}

TEST(Loader, RefusesARankWithoutDocuments) {
  const auto documents = numbered_documents({10, 10});
  EXPECT_THAT(message_of([&] { list_loader(documents, small(2, 3)); }),
              HasSubstr("leaves none for data-parallel rank 2 of 3"));
}

TEST(Loader, RefusesAnEpochWithoutTokens) {
  const auto loader = list_loader(numbered_documents({0, 1, 1}), small());
  EXPECT_THAT(message_of([&] { loader->next(); }), HasSubstr("gave no tokens"));
}

TEST(Loader, FillsARowFromManyShortEpochs) {
  LoaderOptions options = small();
  options.seq_len = 100;
  const auto loader = list_loader(numbered_documents({3, 4}), options);
  EXPECT_EQ(loader->next()->rows, 2);
}

TEST(Loader, RefusesSizesBelowOne) {
  LoaderOptions options = small();
  options.seq_len = 0;
  EXPECT_THAT(message_of([&] { list_loader(numbered_documents({9}), options); }),
              HasSubstr("training.seq_len"));
  EXPECT_THAT(message_of([&] { list_loader(numbered_documents({9}), small(1, 1)); }), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace milepost::data
