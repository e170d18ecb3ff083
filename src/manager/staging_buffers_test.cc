#include "milepost/manager/staging_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

namespace milepost::manager {
namespace {

std::vector<ByteVector> random_pieces(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<ByteVector> pieces;
  for (int64_t size : {0, 1, 4, 63, 64, 65, 100'000, (4 << 20) + 1, 9 << 20, 70 << 20, 3, 60 << 20}) {
    pieces.emplace_back(static_cast<size_t>(size));
    for (size_t i = 0; i < pieces.back().size(); i += 509)
      pieces.back()[i] = static_cast<std::byte>(random());
  }
  return pieces;
}

std::vector<Bytes> place_all(StagingBuffers& staging, const std::vector<ByteVector>& pieces) {
  std::vector<Bytes> copies;
  staging.clear();
  for (const ByteVector& piece : pieces) copies.push_back(staging.place(piece));
  return copies;
}

void expect_equal(const std::vector<Bytes>& copies, const std::vector<ByteVector>& pieces) {
  ASSERT_EQ(copies.size(), pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    ASSERT_EQ(copies[i].size(), pieces[i].size());
    if (pieces[i].empty()) continue;  // whose pointers may be null
    EXPECT_EQ(std::memcmp(copies[i].data(), pieces[i].data(), pieces[i].size()), 0) << i;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(copies[i].data()) % 64, 0U);
  }
}

TEST(StagingBuffers, KeepCopiesWhateverBecomesOfTheOriginals) {
  for (const auto kind : {StagingBuffers::Kind::kPageable, StagingBuffers::Kind::kLocked}) {
    StagingBuffers staging(kind);
    for (unsigned round = 0; round < 3; ++round) {
      std::vector<ByteVector> pieces = random_pieces(round);
      const std::vector<ByteVector> originals = pieces;
      const std::vector<Bytes> copies = place_all(staging, pieces);
      staging.copy(1 + static_cast<int>(round));
      EXPECT_TRUE(staging.is_copied());
      for (ByteVector& piece : pieces) std::fill(piece.begin(), piece.end(), std::byte{0xee});
      expect_equal(copies, originals);
    }
  }
}

TEST(StagingBuffers, ReuseTheirMemory) {
  StagingBuffers staging(StagingBuffers::Kind::kPageable);
  const std::vector<ByteVector> pieces = random_pieces(0);
  const std::vector<Bytes> first = place_all(staging, pieces), second = place_all(staging, pieces);
  for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(first[i].data(), second[i].data());
}

TEST(StagingBuffers, LetSeveralThreadsShareOneCopy) {
  StagingBuffers staging(StagingBuffers::Kind::kPageable);
  const std::vector<ByteVector> pieces = random_pieces(5);
  for (int round = 0; round < 20; ++round) {
    const std::vector<Bytes> copies = place_all(staging, pieces);
    std::thread other([&] { staging.copy(1); });
    staging.copy(2);
    EXPECT_TRUE(staging.is_copied());
    expect_equal(copies, pieces);
    other.join();
  }
}

TEST(StagingBuffers, MayBeEmpty) {
  StagingBuffers staging(StagingBuffers::Kind::kLocked);
  staging.copy(2);
  EXPECT_TRUE(staging.is_copied());
  EXPECT_EQ(staging.size_bytes(), 0);
}

}  // namespace
}  // namespace milepost::manager
