#include "milepost/catalog/catalog.h"

#include <gtest/gtest.h>

#include "milepost/base/error.h"

namespace milepost {
namespace {

TEST(Catalog, ReturnsTheBoxesAndLocationsThatWereAdded) {
  Catalog catalog;
  const uint32_t file = catalog.add_file("__0_0.distcp", 100);
  catalog.add_tensor("a", DType::kFloat32, Dims{4, 6});
  catalog.add_chunk(Dims{0, 0}, Dims{2, 6}, {0, 48, file, Location::kTorchItem});
  const int64_t second = catalog.add_chunk(Dims{2, 0}, Dims{2, 6});
  catalog.add_tensor("scalar", DType::kInt64, Dims{});
  const int64_t third = catalog.add_chunk(Dims{}, Dims{});
  catalog.set_chunk_location(third, {48, 8, file, Location::kRowMajor});

  const Catalog::Tensor& a = catalog.tensors()[0];
  EXPECT_EQ(a.num_chunks, 2);
  EXPECT_EQ(catalog.chunk_box(a, second), (Box{{2, 0}, {2, 6}}));
  EXPECT_EQ(catalog.chunk_location(second).file, Location::kNoFile);
  EXPECT_EQ(catalog.chunk_box(catalog.tensors()[1], third), Box());
  EXPECT_EQ(catalog.chunk_location(third).offset, 48);
  EXPECT_EQ(catalog.num_chunks(), 3);
}

TEST(Catalog, FindsTheTensorOfAChunkAmongTensorsWithoutChunks) {
  Catalog catalog;
  catalog.add_tensor("none", DType::kInt8, Dims{0});
  catalog.add_tensor("two", DType::kInt8, Dims{2});
  catalog.add_chunk(Dims{0}, Dims{1});
  catalog.add_chunk(Dims{1}, Dims{1});
  catalog.add_tensor("none again", DType::kInt8, Dims{0});
  catalog.add_tensor("one", DType::kInt8, Dims{1});
  catalog.add_chunk(Dims{0}, Dims{1});
  catalog.add_tensor("none at the end", DType::kInt8, Dims{0});
  EXPECT_EQ(catalog.tensor_of_chunk(0), 1);
  EXPECT_EQ(catalog.tensor_of_chunk(1), 1);
  EXPECT_EQ(catalog.tensor_of_chunk(2), 3);
}

TEST(Catalog, RefusesANameThatOccursTwiceWhateverItsKind) {
  Catalog catalog;
  catalog.add_tensor("x", DType::kInt8, Dims{});
  catalog.add_object("y");
  for (const char* name : {"x", "y"}) {
    try {
      name[0] == 'x' ? catalog.add_object(name) : catalog.add_tensor(name, DType::kInt8, Dims{});
      FAIL();
    } catch (const FormatError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDuplicate);
      EXPECT_EQ(error.key(), name);
    }
  }
}

TEST(Catalog, TellsTensorsAndObjectsApart) {
  Catalog catalog;
  catalog.add_tensor("t", DType::kInt8, Dims{});
  catalog.add_object("o");
  EXPECT_EQ(catalog.find_tensor("t"), 0);
  EXPECT_EQ(catalog.find_object("o"), 0);
  EXPECT_FALSE(catalog.find_tensor("o"));
  EXPECT_FALSE(catalog.find_object("t"));
  EXPECT_FALSE(catalog.find_tensor("absent"));
}

TEST(Catalog, ListsNamesInTheCheckpointsOrder) {
  Catalog catalog;
  catalog.add_tensor("t", DType::kInt8, Dims{});
  catalog.add_object("o");
  EXPECT_EQ(catalog.names_in_order(), (std::vector<std::string_view>{"t", "o"}));
  catalog.set_order({"o", "t"});
  EXPECT_EQ(catalog.names_in_order(), (std::vector<std::string_view>{"o", "t"}));
}

TEST(Catalog, GivesEntriesWithoutAPathTheirNameAsPath) {
  Catalog catalog;
  catalog.add_object("a.b");
  EXPECT_FALSE(catalog.has_paths());
  EXPECT_EQ(catalog.path("a.b"), (KeyPath{std::string("a.b")}));
  catalog.set_path("a.b", {std::string("a"), int64_t{3}});
  EXPECT_TRUE(catalog.has_paths());
  EXPECT_EQ(catalog.path("a.b"), (KeyPath{std::string("a"), int64_t{3}}));
}

TEST(Catalog, SharesFilesAndLayouts) {
  Catalog catalog;
  EXPECT_EQ(catalog.add_file("f", 1), catalog.add_file("f", 1));
  const StorageLayout layout{0, {1, 4}, false, false, false};
  EXPECT_EQ(catalog.add_layout(layout), catalog.add_layout(layout));
  EXPECT_NE(catalog.add_layout({1, {1, 4}, false, false, false}), catalog.add_layout(layout));
}

TEST(Catalog, TakesAtMost120BytesAChunk) {
  Catalog catalog;
  constexpr int64_t kChunks = 200'000;
  catalog.add_tensor("w", DType::kFloat32, Dims{kChunks, 8, 8});
  for (int64_t i = 0; i < kChunks; ++i) catalog.add_chunk(Dims{i, 0, 0}, Dims{1, 8, 8});
  EXPECT_LE(catalog.index_bytes(), 120 * kChunks);
}

TEST(TensorBytes, RefusesAShapeThatIsNoSizeInBytes) {
  const Catalog::Tensor huge{"w", DType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40}};
  EXPECT_THROW(tensor_bytes(huge), FormatError);
  const Catalog::Tensor plain{"w", DType::kBFloat16, {3, 5}};
  EXPECT_EQ(tensor_bytes(plain), 30);
}

}  // namespace
}  // namespace milepost
