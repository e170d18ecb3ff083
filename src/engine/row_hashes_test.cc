#include "engine/row_hashes.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace milepost {
namespace {

ByteVector random_bytes(std::mt19937_64& random, size_t size) {
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Rows of files, each row of a file in parts of any sizes, empty ones among them.
using Rows = std::vector<std::vector<std::vector<Bytes>>>;  // row, file, part

Rows cut(std::mt19937_64& random, const std::vector<ByteVector>& files, size_t row_bytes) {
  Rows rows;
  for (size_t f = 0; f < files.size(); ++f) {
    for (size_t row = 0; row * row_bytes < files[f].size(); ++row) {
      if (rows.size() <= row) rows.resize(row + 1, Rows::value_type(files.size()));
      Bytes rest = Bytes(files[f]).subspan(row * row_bytes);
      rest = rest.first(std::min(rest.size(), row_bytes));
      while (!rest.empty()) {
        const size_t length = std::min<size_t>(rest.size(), random() % 3 == 0 ? 0 : random() % 700);
        rows[row][f].push_back(rest.first(length));
        rest = rest.subspan(length);
      }
    }
  }
  return rows;
}

bool add(RowHashes& hashes, const Rows& rows, size_t row) {
  std::vector<std::span<const Bytes>> parts(rows[row].begin(), rows[row].end());
  return hashes.add(static_cast<int64_t>(row), parts);
}

TEST(RowHashes, AgreesWithOneStreamAFile) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<ByteVector> files;
    for (size_t i = 0; i < 1 + random() % 4; ++i) files.push_back(random_bytes(random, random() % 20000));
    const Rows rows = cut(random, files, 1000 + random() % 3000);
    RowHashes hashes(files.size());
    std::vector<std::thread> threads;
    for (size_t first = 0; first < 3; ++first) {
      threads.emplace_back([&, first] {
        for (size_t row = first; row < rows.size(); row += 3) EXPECT_TRUE(add(hashes, rows, row));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(hashes.finish(i), sha256(files[i])) << i;
  }
}

TEST(RowHashes, RowsAfterAFailedOneAreNotWaitedFor) {
  std::mt19937_64 random(6);
  const std::vector<ByteVector> files = {random_bytes(random, 5000)};
  const Rows rows = cut(random, files, 1000);
  RowHashes hashes(1);
  bool last = true, first = false;
  std::thread waiting([&] { last = add(hashes, rows, 4); });
  hashes.fail(2);
  waiting.join();
  EXPECT_FALSE(last);
  first = add(hashes, rows, 0) && add(hashes, rows, 1);
  EXPECT_TRUE(first);
}

}  // namespace
}  // namespace milepost
