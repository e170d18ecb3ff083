#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/dcp_metadata_compare.h"
#include "format/dcp_metadata_fast.h"
#include "format/dcp_test_files.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {
namespace {

using ::testing::MatchesRegex;
using namespace dcp::testing;

ByteVector write(const Catalog& catalog,
                 const WriteMetadataOptions& options = {.checkpoint_id = "step-1", .save_id = {}}) {
  VectorSink sink;
  write_metadata(catalog, options, sink);
  return std::move(sink.data);
}

// What is written must be read by both readers, and by the fast one in particular.
Metadata read_back(const ByteVector& bytes) {
  const MemorySource source(Bytes(bytes), "written");
  std::optional<Metadata> fast = read_metadata_fast(source);
  EXPECT_TRUE(fast.has_value());
  Metadata general = read_metadata_general(source);
  if (fast) {
    EXPECT_EQ(metadata_difference(*fast, general), "");
  }
  return general;
}

void expect_same_after_writing(Catalog& catalog) {
  const Metadata again = read_back(write(catalog));
  catalog.set_has_paths(true);  // always written
  EXPECT_EQ(catalog_difference(catalog, again.catalog), "");
}

Location at(uint32_t file, int64_t offset) { return {offset, 64, file, Location::kTorchItem}; }

TEST(DcpMetadataWriter, ReadsBackEveryFixture) {
  for (const auto& path : good_metadata_files()) {
    SCOPED_TRACE(path);
    const std::string bytes = file_content(path);
    Metadata metadata = read_metadata(MemorySource(as_bytes(bytes), path.string()));
    expect_same_after_writing(metadata.catalog);
  }
}

TEST(DcpMetadataWriter, SaysWhatTorchSays) {
  Catalog catalog;
  catalog.add_object("step", at(catalog.add_file("__0_0.distcp", -1), 0));
  const Metadata metadata = read_back(write(catalog));
  EXPECT_EQ(metadata.version, "1.0.0");
  EXPECT_EQ(metadata.checkpoint_id, "step-1");
  EXPECT_EQ(metadata.writer, "torch >= 2.9");
  EXPECT_TRUE(metadata.warnings.empty());
}

TEST(DcpMetadataWriter, WritesAnEmptyCatalog) {
  Catalog catalog;
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, WritesNumbersOfEveryWidth) {
  Catalog catalog;
  const uint32_t file = catalog.add_file("f", -1);
  const std::vector<int64_t> numbers = {0,
                                        255,
                                        256,
                                        65535,
                                        65536,
                                        INT32_MAX,
                                        int64_t{1} << 31,
                                        (int64_t{1} << 39) - 1,
                                        int64_t{1} << 39,
                                        (int64_t{1} << 47) - 1,
                                        int64_t{1} << 55,
                                        int64_t{1} << 57};
  catalog.add_tensor("w", DType::kInt8, Dims{int64_t{1} << 59});
  for (int64_t number : numbers) catalog.add_chunk(Dims{number}, Dims{number / 2}, at(file, number));
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, WritesEveryDTypeAndRank) {
  Catalog catalog;
  const uint32_t file = catalog.add_file("f", -1);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!dtype_info(dtype).in_torch) continue;
    const Dims shape(static_cast<size_t>(i), 2);
    catalog.add_tensor(std::string(dtype_name(dtype)), dtype, shape);
    catalog.add_chunk(Dims(shape.size(), 0), shape, at(file, i));
  }
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, WritesMoreItemsThanABatchHolds) {
  for (int64_t count : {999, 1000, 1001, 2000, 2001}) {
    Catalog catalog;
    const uint32_t file = catalog.add_file("f", -1);
    catalog.add_tensor("w", DType::kFloat32, Dims{count});
    for (int64_t i = 0; i < count; ++i) catalog.add_chunk(Dims{i}, Dims{1}, at(file, i));
    for (int64_t i = 0; i < count; ++i) catalog.add_object("object" + std::to_string(i), at(file, i));
    expect_same_after_writing(catalog);
  }
}

TEST(DcpMetadataWriter, WritesNamesOfEveryLength) {
  Catalog catalog;
  for (size_t length : {0u, 1u, 255u, 256u, 70'000u, 3'000'000u}) {
    const uint32_t file = catalog.add_file("f" + std::string(length / 2, 'f'), -1);
    catalog.add_tensor(std::string(length, 'w'), DType::kFloat32, Dims{1});
    catalog.add_chunk(Dims{0}, Dims{1}, at(file, 0));
  }
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, WritesNamesThatAreWordsOfTheFormat) {
  Catalog catalog;
  for (const char* name : {"size", "chunks", "torch", "storage_data", "planner_data", "version", "float32",
                           "torch.strided", "torch.distributed.checkpoint.metadata", "MetadataIndex"}) {
    catalog.add_tensor(name, DType::kFloat32, Dims{});
    catalog.add_chunk(Dims{}, Dims{}, at(catalog.add_file(name, -1), 0));
    catalog.set_path(name, {PathElement("size"), PathElement(int64_t{3}), PathElement(name)});
  }
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, KeepsPathsAndOrder) {
  Catalog catalog;
  const uint32_t file = catalog.add_file("f", -1);
  catalog.add_object("b", at(file, 0));
  catalog.add_tensor("a", DType::kFloat32, Dims{});
  catalog.add_chunk(Dims{}, Dims{}, at(file, 64));
  catalog.add_object("c.d.0.e.f", at(file, 128));
  catalog.set_path("c.d.0.e.f",
                   {PathElement("c"), PathElement("d"), PathElement(int64_t{0}), PathElement("e.f")});
  catalog.set_path("b", {PathElement("c"), PathElement("b")});
  catalog.set_order({"b", "a", "c.d.0.e.f"});
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, LeavesOutStorageOfEmptyChunks) {
  Catalog catalog;
  catalog.add_tensor("w", DType::kFloat32, Dims{0, 3});
  catalog.add_chunk(Dims{0, 0}, Dims{0, 3});
  catalog.add_tensor("none", DType::kFloat32, Dims{0});
  expect_same_after_writing(catalog);
}

TEST(DcpMetadataWriter, DerivesTheSaveIdFromTheContent) {
  const auto save_id = [](int64_t offset) {
    Catalog catalog;
    catalog.add_object("step", at(catalog.add_file("f", -1), offset));
    return read_back(write(catalog)).save_id;
  };
  EXPECT_THAT(save_id(0),
              MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_EQ(save_id(0), save_id(0));
  EXPECT_NE(save_id(0), save_id(64));
  Catalog catalog;
  EXPECT_EQ(read_back(write(catalog, {.checkpoint_id = "c", .save_id = "mine"})).save_id, "mine");
}

TEST(DcpMetadataWriter, EscapesACheckpointIdThatIsNoText) {
  EXPECT_EQ(read_back(write({}, {.checkpoint_id = "a\xff", .save_id = {}})).checkpoint_id, "a\\xff");
  EXPECT_EQ(read_back(write({}, {.checkpoint_id = "\u00e9", .save_id = {}})).checkpoint_id, "\u00e9");
}

TEST(DcpMetadataWriter, TakesAtMost150BytesAChunk) {
  constexpr int64_t kChunks = 20'000;
  Catalog catalog;
  catalog.add_tensor("layers.0.attention.wq.weight", DType::kFloat32, Dims{16 * kChunks, 7168});
  for (int64_t i = 0; i < kChunks; ++i) {
    const uint32_t file = catalog.add_file(data_file_name(i % 1024, 0), -1);
    catalog.add_chunk(Dims{16 * i, 0}, Dims{16, 7168}, at(file, (int64_t{1} << 40) + i));
  }
  EXPECT_LE(write(catalog).size(), 150u * kChunks);
}

TEST(DcpMetadataWriter, NamesDataFiles) {
  EXPECT_EQ(data_file_name(0, 0), "__0_0.distcp");
  EXPECT_EQ(data_file_name(1023, 12), "__1023_12.distcp");
}

}  // namespace
}  // namespace milepost::dcp
