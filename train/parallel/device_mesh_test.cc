#include "train/parallel/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::Parallelism options(int64_t replicate, int64_t shard, int64_t cp = 1, int64_t tp = 1, int64_t pp = 1,
                            int64_t ep = 1) {
  config::Parallelism p;
  p.data_parallel_replicate_degree = replicate;
  p.data_parallel_shard_degree = shard;
  p.context_parallel_degree = cp;
  p.tensor_parallel_degree = tp;
  p.pipeline_parallel_degree = pp;
  p.expert_parallel_degree = ep;
  return p;
}

std::string refusal(const config::Parallelism& p, int64_t world_size) {
  try {
    resolve_degrees(p, world_size);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Degrees, FillInTheShards) {
  const Degrees d = resolve_degrees(options(2, -1, 1, 2), 16);
  EXPECT_EQ(d.dp_shard, 4);
  EXPECT_EQ(d.world_size(), 16);
  EXPECT_EQ(d.data_ranks(), 8);
}

TEST(Degrees, RefuseWhatIsNoMesh) {
  EXPECT_THAT(refusal(options(0, -1), 2), HasSubstr("Parallelism degree should be >= 1"));
  EXPECT_THAT(refusal(options(1, 0), 2), HasSubstr("dp_shard must -1 or >=1."));
  EXPECT_THAT(refusal(options(1, -2), 2), HasSubstr("dp_shard must -1 or >=1."));
  EXPECT_THAT(refusal(options(2, 2), 2), HasSubstr("!= WORLD_SIZE(2)"));
  EXPECT_THAT(refusal(options(4, -1), 2), HasSubstr("!= WORLD_SIZE(2)"));
  EXPECT_THAT(refusal(options(3, -1), 4), HasSubstr("!= WORLD_SIZE(4)"));
  EXPECT_THAT(refusal(options(1, -1, 1, 1, 1, 3), 4), HasSubstr("Mesh 'efsdp' has unexpected size"));
  EXPECT_THAT(refusal(options(int64_t{1} << 20, -1, int64_t{1} << 20, int64_t{1} << 20, int64_t{1} << 20), 1),
              HasSubstr("!= WORLD_SIZE(1)"));
}

// The worked example of spec parallelism, section 2.
TEST(DeviceMesh, PutsExpertsOnConsecutiveRanks) {
  const Degrees d = resolve_degrees(options(1, 4, 1, 2, 1, 4), 8);
  EXPECT_THAT(DeviceMesh(d, 1).group("ep"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(DeviceMesh(d, 6).group("ep"), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(DeviceMesh(d, 6).group("efsdp"), ElementsAre(2, 6));
  EXPECT_THAT(DeviceMesh(d, 5).group("tp"), ElementsAre(4, 5));
  EXPECT_THAT(DeviceMesh(d, 5).group("fsdp"), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(DeviceMesh(d, 5).coordinate("fsdp"), 2);
  EXPECT_THAT(DeviceMesh(d, 0).all_groups("efsdp"),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
}

TEST(DeviceMesh, PutsPipelineStagesFarthestApart) {
  const Degrees d = resolve_degrees(options(2, 2, 1, 2, 2), 16);
  EXPECT_THAT(DeviceMesh(d, 3).group("pp"), ElementsAre(3, 11));
  EXPECT_THAT(DeviceMesh(d, 3).group("dp_replicate"), ElementsAre(3, 7));
  EXPECT_THAT(DeviceMesh(d, 3).group("batch"), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(DeviceMesh(d, 12).active_dimensions(), ElementsAre("pp", "dp_replicate", "dp_shard", "tp"));
}

TEST(DeviceMesh, EveryRankIsInOneGroupOfEachDimension) {
  const Degrees d = resolve_degrees(options(2, 3, 2, 2, 2, 4), 48);
  for (const char* name :
       {"pp", "dp_replicate", "dp_shard", "fsdp", "cp", "tp", "batch", "loss", "efsdp", "ep"}) {
    std::vector<int> seen(48);
    for (const auto& group : DeviceMesh(d, 0).all_groups(name)) {
      for (size_t i = 0; i < group.size(); ++i) {
        ++seen[static_cast<size_t>(group[i])];
        const DeviceMesh mesh(d, group[i]);
        EXPECT_EQ(mesh.group(name), group) << name;
        EXPECT_EQ(mesh.coordinate(name), static_cast<int64_t>(i)) << name;
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1)) << name;
  }
}

TEST(DeviceMesh, RefusesStrangersAndUnknownNames) {
  const Degrees d = resolve_degrees(options(1, 2), 2);
  EXPECT_THROW(DeviceMesh(d, 2), ValueError);
  EXPECT_THROW(DeviceMesh(d, 0).group("rows"), ValueError);
}

}  // namespace
}  // namespace milepost::train
