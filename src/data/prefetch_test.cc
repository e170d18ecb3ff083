#include "milepost/data/prefetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_data.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

LoaderOptions options(bool infinite = true) {
  return {.dataset = "numbers", .infinite = infinite, .local_batch_size = 2, .seq_len = 16};
}

std::unique_ptr<Loader> loader(bool infinite = true) {
  return list_loader(numbered_documents(mixed_lengths(60)), options(infinite));
}

TEST(Prefetcher, GivesTheSameBatchesStatesAndMessages) {
  const auto plain = loader(/*infinite=*/false);
  Prefetcher ahead(loader(/*infinite=*/false));
  for (;;) {
    const std::optional<Batch> want = plain->next(), got = ahead.next();
    ASSERT_EQ(want.has_value(), got.has_value());
    ASSERT_EQ(plain->state(), ahead.state());
    ASSERT_EQ(plain->take_messages().size(), ahead.take_messages().size());
    if (!want) break;
    ASSERT_EQ(want->inputs, got->inputs);
    ASSERT_EQ(want->labels, got->labels);
  }
  EXPECT_FALSE(ahead.next());
}

TEST(Prefetcher, WhatWasReadAheadDoesNotShowInItsState) {
  const auto plain = loader();
  Prefetcher ahead(loader(), 8);
  for (int i = 0; i < 3; ++i) {
    plain->next();
    ahead.next();
  }
  bool is_exact = false, is_exact_ahead = false;
  EXPECT_EQ(plain->titan_entry(plain->state(), &is_exact), ahead.titan_entry(&is_exact_ahead));
  EXPECT_EQ(plain->ledger_part(plain->state()), ahead.ledger_part());
}

TEST(Prefetcher, GoesOnFromALedger) {
  const auto plain = loader();
  for (int i = 0; i < 5; ++i) plain->next();
  Prefetcher ahead(loader());
  ahead.restore({.titan_entry = {}, .titan_world_size = {}, .ledger = plain->ledger_part(plain->state())});
  EXPECT_EQ(plain->state(), ahead.state());
  EXPECT_EQ(plain->next()->inputs, ahead.next()->inputs);
}

TEST(Prefetcher, BringsTheLoadersErrorAtItsBatch) {
  LoaderOptions bounded = options();
  bounded.model_vocab_size = 5000;
  const auto documents = numbered_documents({33, 33, 33, 33, 33, 33});
  const auto plain = list_loader(documents, bounded);
  Prefetcher ahead(list_loader(documents, bounded));
  int good = 0;
  EXPECT_THROW(for (;; ++good) plain->next(), ValueError);
  for (int i = 0; i < good; ++i) EXPECT_TRUE(ahead.next());
  EXPECT_THROW(ahead.next(), ValueError);
  EXPECT_THROW(ahead.next(), ValueError);
}

TEST(Prefetcher, EndsInTheMiddle) {
  for (int taken : {0, 1, 5}) {
    Prefetcher ahead(loader(), 2);
    for (int i = 0; i < taken; ++i) ahead.next();
  }
}

}  // namespace
}  // namespace milepost::data
