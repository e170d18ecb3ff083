#include <gtest/gtest.h>

#include <random>

#include "milepost/plan/overlap.h"

namespace milepost {
namespace {

using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Box random_box(Random& random, DimsView shape) {
  Box box;
  for (int64_t size : shape) {
    box.offsets.push_back(pick(random, 0, size));
    box.sizes.push_back(pick(random, 0, size - box.offsets.back()));
  }
  return box;
}

TEST(ChunkFinder, FindsWhatTryingAllFinds) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    Catalog catalog;
    Dims shape;
    for (int64_t d = pick(random, 0, 3); d > 0; --d) shape.push_back(pick(random, 0, 12));
    catalog.add_tensor("before", DType::kInt8, shape);
    catalog.add_chunk(Box::whole(shape).offsets, shape);
    catalog.add_tensor("w", DType::kInt8, shape);
    for (int64_t i = pick(random, 0, 60); i > 0; --i) {
      const Box box = random_box(random, shape);
      catalog.add_chunk(box.offsets, box.sizes);
    }
    const ChunkFinder finder(catalog, 1);
    std::vector<ChunkFinder::Hit> hits = {{99, {}}};
    for (int query = 0; query < 5; ++query) {
      const Box wanted = random_box(random, shape);
      finder.find(wanted, &hits);
      size_t at = 0;
      const Catalog::Tensor& tensor = catalog.tensors()[1];
      for (int64_t chunk = tensor.first_chunk; chunk < catalog.num_chunks(); ++chunk) {
        const std::optional<Box> common = intersect(catalog.chunk_box(tensor, chunk), wanted);
        if (!common) continue;
        ASSERT_LT(at, hits.size());
        EXPECT_EQ(hits[at].chunk, chunk);
        EXPECT_EQ(hits[at].box, *common);
        ++at;
      }
      ASSERT_EQ(at, hits.size());
    }
  }
}

TEST(ChunkFinder, FindsTheChunkOfAScalar) {
  Catalog catalog;
  catalog.add_tensor("s", DType::kInt8, Dims{});
  catalog.add_chunk(Dims{}, Dims{});
  std::vector<ChunkFinder::Hit> hits;
  ChunkFinder(catalog, 0).find({}, &hits);
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].chunk, 0);
}

TEST(ChunkFinder, NeverFindsChunksOutOfBounds) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (int64_t copies : {1, 20}) {
    Catalog catalog;
    catalog.add_tensor("w", DType::kInt8, Dims{4});
    for (int64_t i = 0; i < copies; ++i) {
      catalog.add_chunk(Dims{i % 4}, Dims{kMax});
      catalog.add_chunk(Dims{-1}, Dims{2});
    }
    std::vector<ChunkFinder::Hit> hits;
    ChunkFinder(catalog, 0).find(Box::whole(Dims{4}), &hits);
    EXPECT_TRUE(hits.empty());
  }
}

}  // namespace
}  // namespace milepost
