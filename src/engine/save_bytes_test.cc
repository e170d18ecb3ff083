#include "milepost/engine/save_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "milepost/base/error.h"

namespace milepost {
namespace {

LocalPlan some_plan() {
  LocalPlan plan;
  plan.add_tensor("w", DType::kBFloat16, Dims{4, 6}, Box{{2, 0}, {2, 6}});
  plan.add_object("step");
  plan.add_tensor("w", DType::kBFloat16, Dims{4, 6}, Box{{0, 0}, {2, 6}});
  plan.add_tensor("scalar", DType::kFloat32, Dims{}, Box{});
  return plan;
}

TEST(SaveBytes, APlanComesBackAsItWas) {
  const LocalPlan plan = some_plan();
  const std::string bytes = encode_local_plan(plan);
  const LocalPlan again = decode_local_plan(bytes);
  EXPECT_EQ(encode_local_plan(again), bytes);
  ASSERT_EQ(again.items().size(), 4U);
  EXPECT_EQ(again.names()[again.items()[1].name], "step");
  EXPECT_EQ(again.items()[1].ndim, -1);
  EXPECT_THAT(again.offsets(again.items()[0]), ::testing::ElementsAre(2, 0));
  EXPECT_EQ(again.items()[3].ndim, 0);
}

TEST(SaveBytes, AResultComesBackAsItWas) {
  RankResult result;
  result.files = {"__0_0.distcp", "__0_1.distcp"};
  result.file_sizes = {100, 50};
  result.places = {{1, 0, 50}, {0, 90, 10}};
  EXPECT_TRUE(decode_rank_result(encode_rank_result(result)).digests.empty());
  result.digests = {sha256(as_bytes("first")), sha256(as_bytes("second"))};
  const RankResult again = decode_rank_result(encode_rank_result(result));
  EXPECT_EQ(again.files, result.files);
  EXPECT_EQ(again.file_sizes, result.file_sizes);
  EXPECT_EQ(again.digests, result.digests);
  ASSERT_EQ(again.places.size(), 2U);
  EXPECT_EQ(again.places[1].offset, 90);
}

TEST(SaveBytes, EveryCutIsAnError) {
  const std::string plan = encode_local_plan(some_plan());
  for (size_t size = 0; size < plan.size(); ++size) {
    EXPECT_THROW(decode_local_plan(std::string_view(plan).substr(0, size)), FormatError) << size;
  }
  EXPECT_THROW(decode_local_plan(plan + "x"), FormatError);
}

TEST(SaveBytes, AHugeCountAllocatesNothing) {
  std::string bytes(8, '\0');
  const int64_t count = int64_t{1} << 60;
  std::memcpy(bytes.data(), &count, sizeof(count));
  EXPECT_THROW(decode_local_plan(bytes), FormatError);
  EXPECT_THROW(decode_rank_result(bytes), FormatError);
}

TEST(SaveBytes, DigestsOfSomeFilesAreAnError) {
  RankResult result;
  result.files = {"a", "b"};
  result.file_sizes = {1, 1};
  result.digests = {sha256(as_bytes("a"))};
  EXPECT_THROW(decode_rank_result(encode_rank_result(result)), FormatError);
}

TEST(SaveBytes, APlaceOutsideItsFileIsAnError) {
  RankResult result;
  result.files = {"f"};
  result.file_sizes = {10};
  result.places = {{0, 5, 6}};
  EXPECT_THROW(decode_rank_result(encode_rank_result(result)), FormatError);
  result.places = {{1, 0, 1}};
  EXPECT_THROW(decode_rank_result(encode_rank_result(result)), FormatError);
}

}  // namespace
}  // namespace milepost
