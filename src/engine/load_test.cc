#include "milepost/engine/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/test_memory.h"
#include "milepost/base/error.h"
#include "milepost/engine/save.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;

// One float32 tensor "w" whose element i is i, cut into row chunks of the given sizes, and two other tensors.
std::shared_ptr<const Checkpoint> saved(const StorageLocation& where, DimsView shape,
                                        const std::vector<int64_t>& rows) {
  std::vector<LocalPlan> plans;
  std::vector<float> values(static_cast<size_t>(num_elements(shape)));
  std::iota(values.begin(), values.end(), 0.0F);
  Catalog catalog;
  const auto bytes = static_cast<int64_t>(values.size() * 4);
  const uint32_t file = catalog.add_file("w", bytes);
  for (const char* name : {"w", "old"}) {
    catalog.add_tensor(name, DType::kFloat32, shape);
    catalog.add_chunk(Dims(shape.size(), 0), shape, {0, bytes, file, Location::kRowMajor});
  }
  int64_t begin = 0;
  for (int64_t count : rows) {
    LocalPlan plan;
    Box box = Box::whole(shape);
    box.offsets[0] = begin;
    box.sizes[0] = count;
    begin += count;
    plan.add_tensor("w", DType::kFloat32, shape, box);
    plan.add_tensor("old", DType::kFloat32, shape, Box::whole(shape));
    plans.push_back(std::move(plan));
  }
  auto memory = std::make_shared<MemorySource>(Bytes(std::as_bytes(std::span(values))), "w");
  save_dcp(where, plans, {Checkpoint::in_memory(std::move(catalog), {memory}, {})}, {}, false);
  return Checkpoint::open(where);
}

class LoadTest : public ::testing::Test {
 protected:
  StorageLocation where_{memory_storage(), "/c"};
};

TEST_F(LoadTest, ReadsOnlyTheRowsThatAreWanted) {
  const auto checkpoint = saved(where_, Dims{64, 8192}, {40, 24});
  std::vector<float> memory(16 * 8192, -1);
  const LoadReport report = load(checkpoint, {{"w",
                                               DType::kFloat32,
                                               {64, 8192},
                                               {{32, 0}, {16, 8192}},
                                               reinterpret_cast<std::byte*>(memory.data()),
                                               {}}});
  EXPECT_EQ(memory[0], 32 * 8192);
  EXPECT_EQ(memory.back(), 48 * 8192 - 1);
  EXPECT_EQ(report.bytes_wanted, 16 * 8192 * 4);
  EXPECT_LE(report.bytes_read, report.bytes_wanted * 102 / 100);
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"old"});
}

TEST_F(LoadTest, ReadsLongColumnRunsWithoutTheBytesBetween) {
  const auto checkpoint = saved(where_, Dims{32, 8192}, {32});
  std::vector<float> memory(32 * 4096);
  const LoadReport report = load(checkpoint, {{"w",
                                               DType::kFloat32,
                                               {32, 8192},
                                               {{0, 4096}, {32, 4096}},
                                               reinterpret_cast<std::byte*>(memory.data()),
                                               {}}});
  EXPECT_EQ(memory[4096], 8192 + 4096);
  EXPECT_LE(report.bytes_read, report.bytes_wanted * 102 / 100);
}

TEST_F(LoadTest, FillsTransposedMemory) {
  const auto checkpoint = saved(where_, Dims{5, 7}, {3, 2});
  std::vector<float> memory(35);
  load(checkpoint, {{"w",
                     DType::kFloat32,
                     {5, 7},
                     Box::whole(Dims{5, 7}),
                     reinterpret_cast<std::byte*>(memory.data()),
                     {1, 5}}});
  for (size_t r = 0; r < 5; ++r) {
    for (size_t c = 0; c < 7; ++c) EXPECT_EQ(memory[c * 5 + r], r * 7 + c);
  }
}

TEST_F(LoadTest, CastsIntoDenseAndStridedMemory) {
  const auto checkpoint = saved(where_, Dims{5, 7}, {5});
  std::vector<double> dense(35), strided(35);
  load(
      checkpoint,
      {{"w", DType::kFloat64, {5, 7}, Box::whole(Dims{5, 7}), reinterpret_cast<std::byte*>(dense.data()), {}},
       {"w",
        DType::kFloat64,
        {5, 7},
        Box::whole(Dims{5, 7}),
        reinterpret_cast<std::byte*>(strided.data()),
        {1, 5}}});
  EXPECT_EQ(dense[34], 34);
  EXPECT_EQ(strided[1], 7);
}

TEST_F(LoadTest, ReportsAllDifferencesAtOnceBeforeAnyByteMoves) {
  const auto checkpoint = saved(where_, Dims{4, 2}, {4});
  std::vector<float> memory(12, -1);
  auto* data = reinterpret_cast<std::byte*>(memory.data());
  LoadOptions options;
  options.allow_missing = true;  // the size mismatch stays an error
  try {
    load(checkpoint,
         {{"w", DType::kFloat32, {6, 2}, Box::whole(Dims{6, 2}), data, {}},
          {"new", DType::kFloat32, {3}, Box::whole(Dims{3}), data, {}}},
         options);
    FAIL();
  } catch (const ShapeMismatchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("w: saved [4, 2], wanted [6, 2]"));
    EXPECT_THAT(error.what(), HasSubstr("missing in the checkpoint: new"));
    EXPECT_THAT(error.what(), HasSubstr("unexpected in the checkpoint: old"));
  }
  EXPECT_EQ(memory[0], -1);
}

TEST_F(LoadTest, RefusesMissingNamesUnlessAllowed) {
  const auto checkpoint = saved(where_, Dims{4, 2}, {4});
  float value = -1;
  const std::vector<LoadTarget> targets = {
      {"new", DType::kFloat32, {1}, Box::whole(Dims{1}), reinterpret_cast<std::byte*>(&value), {}}};
  EXPECT_THROW(load(checkpoint, targets), MissingKeyError);
  LoadOptions options;
  options.allow_missing = true;
  EXPECT_EQ(load(checkpoint, targets, options).missing, std::vector<std::string>{"new"});
  EXPECT_EQ(value, -1);
}

TEST_F(LoadTest, RefusesLossyCastsWhenAsked) {
  const auto checkpoint = saved(where_, Dims{4}, {4});
  uint16_t memory[4];
  LoadOptions options;
  options.allow_lossy_cast = false;
  try {
    load(checkpoint,
         {{"w", DType::kBFloat16, {4}, Box::whole(Dims{4}), reinterpret_cast<std::byte*>(memory), {}}},
         options);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLossyCast);
  }
}

TEST_F(LoadTest, SaysWhichCastsItDoesNotKnow) {
  MemoryCheckpoint memory;
  memory.tensor("counts", DType::kInt32, Dims{2}, std::vector<int32_t>{1, 2});
  const auto checkpoint = memory.open();
  int64_t counts[2] = {-1, -1};
  float figures[2] = {-1, -1};
  const auto load_as = [&](DType dtype, void* bytes) -> std::string {
    try {
      load(checkpoint, {{"counts", dtype, {2}, Box::whole(Dims{2}), static_cast<std::byte*>(bytes), {}}});
    } catch (const ValueError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_EQ(error.path(), checkpoint->path());
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(load_as(DType::kInt64, counts),
              HasSubstr("unsupported cast: counts: saved int32, wanted int64; "
                        "only floating-point tensors are cast"));
  EXPECT_THAT(load_as(DType::kFloat32, figures), HasSubstr("counts: saved int32, wanted float32"));
  EXPECT_EQ(counts[0], -1);
  EXPECT_EQ(figures[0], -1);
}

TEST_F(LoadTest, RefusesStridesThatAreNotOneADimension) {
  const auto checkpoint = saved(where_, Dims{4, 2}, {4});
  std::vector<float> memory(8, -1);
  auto* data = reinterpret_cast<std::byte*>(memory.data());
  try {
    load(checkpoint, {{"w", DType::kFloat32, {4, 2}, Box::whole(Dims{4, 2}), data, {1}}});
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_EQ(error.key(), "w");
  }
  EXPECT_EQ(memory[0], -1);
}

TEST_F(LoadTest, RefusesPartsOfTensorsOfSixBitElements) {
  MemoryCheckpoint memory;
  memory.tensor("codes", DType::kFloat6E2M3, Dims{8}, std::vector<uint8_t>{1, 2, 3, 4, 5, 6});
  const auto checkpoint = memory.open();
  std::vector<std::byte> bytes(6);
  load(checkpoint, {{"codes", DType::kFloat6E2M3, {8}, Box::whole(Dims{8}), bytes.data(), {}}});
  EXPECT_EQ(bytes[5], std::byte{6});
  EXPECT_THROW(load(checkpoint, {{"codes", DType::kFloat6E2M3, {8}, {{4}, {4}}, bytes.data(), {}}}),
               ValueError);
}

TEST_F(LoadTest, CountsProgressAndStopsWhenCancelled) {
  const auto checkpoint = saved(where_, Dims{64, 8192}, {40, 24});
  std::vector<float> memory(64 * 8192);
  const std::vector<LoadTarget> targets = {{"w",
                                            DType::kFloat32,
                                            {64, 8192},
                                            Box::whole(Dims{64, 8192}),
                                            reinterpret_cast<std::byte*>(memory.data()),
                                            {}}};
  Progress progress;
  LoadOptions options;
  options.progress = &progress;
  load(checkpoint, targets, options);
  EXPECT_EQ(progress.total_bytes, 64 * 8192 * 4);
  EXPECT_EQ(progress.done_bytes, progress.total_bytes);
  progress.cancel = true;
  EXPECT_THROW(load(checkpoint, targets, options), Error);
}

TEST_F(LoadTest, NamesTheMissingFileItsTensorAndRows) {
  saved(where_, Dims{4, 2}, {2, 2});
  where_.storage->remove_file("/c/__1_0.distcp");
  const auto checkpoint = Checkpoint::open(where_);
  std::vector<float> memory(8);
  try {
    load(checkpoint, {{"w",
                       DType::kFloat32,
                       {4, 2},
                       Box::whole(Dims{4, 2}),
                       reinterpret_cast<std::byte*>(memory.data()),
                       {}}});
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMissingFile);
    EXPECT_EQ(error.key(), "w");
    EXPECT_THAT(error.what(), HasSubstr("__1_0.distcp"));
    EXPECT_THAT(error.what(), HasSubstr("[2:4, 0:2]"));
  }
}

}  // namespace
}  // namespace milepost
