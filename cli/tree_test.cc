#include "tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace milepost::cli {
namespace {

// Entries whose names and shapes live as long as the fixture.
class Tree : public testing::Test {
 protected:
  void tensor(const std::string& name, Dims shape, DType dtype = DType::kFloat32) {
    names_.push_back(name);
    shapes_.push_back(std::move(shape));
    entries_.push_back({names_.back(), false, dtype, shapes_.back(), 4});
  }
  void object(const std::string& name) {
    names_.push_back(name);
    entries_.push_back({names_.back(), true, DType::kFloat32, {}, 0});
  }
  std::vector<std::string> folded() {
    std::vector<std::string> lines;
    for (const TreeLine& line : fold(entries_))
      lines.push_back(line.name + " x" + std::to_string(line.count));
    return lines;
  }

  std::deque<std::string> names_;
  std::deque<Dims> shapes_;
  std::vector<TreeEntry> entries_;
};

TEST_F(Tree, FoldsLayersIntoOneLineAName) {
  for (int i = 0; i < 60; ++i) {
    tensor("layers." + std::to_string(i) + ".attention.wq.weight", {1536, 5120});
    tensor("layers." + std::to_string(i) + ".attention.wo.weight", {5120, 1536});
  }
  tensor("norm.weight", {5120});
  EXPECT_THAT(folded(), testing::ElementsAre("layers.[0-59].attention.wq.weight x60",
                                             "layers.[0-59].attention.wo.weight x60", "norm.weight x1"));
}

TEST_F(Tree, KeepsUnlikeLayersApart) {
  for (int i : {0, 1, 2, 5}) tensor("layers." + std::to_string(i) + ".w", {i < 2 ? 4 : 8});
  tensor("layers.6.w", {8}, DType::kBFloat16);
  EXPECT_THAT(folded(), testing::ElementsAre("layers.[0-1].w x2", "layers.[2,5].w x2", "layers.6.w x1"));
}

TEST_F(Tree, FoldsNestedRepetition) {
  for (int layer = 1; layer < 4; ++layer) {
    for (int expert = 0; expert < 8; ++expert) {
      tensor("layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + ".w1", {2, 2});
    }
  }
  EXPECT_THAT(folded(), testing::ElementsAre("layers.[1-3].experts.[0-7].w1 x24"));
}

TEST_F(Tree, FoldsRanksButNotNumberedNames) {
  object("dataloader.dp_rank_0");
  object("dataloader.dp_rank_1");
  tensor("w1", {2});
  tensor("w2", {3});
  EXPECT_THAT(folded(), testing::ElementsAre("dataloader.dp_rank_[0-1] x2", "w1 x1", "w2 x1"));
}

TEST_F(Tree, MergesManyObjectsOfOneParent) {
  for (const char* name : {"fused", "foreach", "lr", "betas", "eps"}) object(std::string("groups.0.") + name);
  for (const char* name : {"fused", "foreach", "lr", "betas", "eps"}) object(std::string("groups.1.") + name);
  object("step");
  EXPECT_THAT(folded(), testing::ElementsAre("groups.[0-1].{fused, foreach, lr, betas, eps} x10", "step x1"));
}

TEST_F(Tree, MergesNeighboursOfOneType) {
  tensor("state.wq.step", {});
  tensor("state.wq.exp_avg", {4});
  tensor("state.wq.exp_avg_sq", {4});
  EXPECT_THAT(folded(), testing::ElementsAre("state.wq.step x1", "state.wq.{exp_avg, exp_avg_sq} x2"));
}

TEST_F(Tree, CollapsesASubtreeOfManyObjects) {
  for (const char* parameter : {"wq", "wk", "wv", "wo", "norm"}) {
    for (const char* name : {"lr", "eps", "betas", "fused"}) {
      object(std::string("optimizer.param_groups.") + parameter + "." + name);
    }
  }
  tensor("optimizer.state.wq.step", {});
  EXPECT_THAT(folded(), testing::ElementsAre("optimizer.param_groups.* x20", "optimizer.state.wq.step x1"));
}

TEST_F(Tree, KeepsANameThatIsAlsoAParent) {
  tensor("a", {1});
  tensor("a.b", {2});
  EXPECT_THAT(folded(), testing::ElementsAre("a x1", "a.b x1"));
}

TEST_F(Tree, ShowsOddNames) {
  tensor("", {1});
  tensor(".", {2});
  tensor("line\nbreak", {3});
  tensor("x..y", {4});
  tensor("007", {5});
  EXPECT_THAT(folded(), testing::ElementsAre(" x1", ". x1", "line\\nbreak x1", "x..y x1", "007 x1"));
}

TEST_F(Tree, SurvivesANameOfManyDots) {
  tensor(std::string(1'000'000, '.'), {1});
  EXPECT_EQ(folded().size(), 1u);
}

TEST(Ranges, AreShort) {
  EXPECT_EQ(ranges_text({0}), "0");
  EXPECT_EQ(ranges_text({0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
  std::vector<int64_t> odd;
  for (int64_t i = 1; i < 200; i += 2) odd.push_back(i);
  EXPECT_LE(ranges_text(odd).size(), 50u);
  EXPECT_TRUE(ranges_text(odd).ends_with(",...,199"));
}

}  // namespace
}  // namespace milepost::cli
