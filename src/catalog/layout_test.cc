#include "milepost/catalog/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "milepost/base/error.h"

namespace milepost {
namespace {

std::vector<Placement> placements(std::vector<std::string> texts) {
  std::vector<Placement> result;
  for (const std::string& text : texts) result.push_back(Placement::parse(text));
  return result;
}

// What a checkpoint holds: the boxes of all ranks in their order, each once.
std::vector<std::string> boxes(const Dims& shape, const char* mesh_text,
                               std::vector<std::string> placement_texts) {
  const Mesh mesh = Mesh::parse(mesh_text);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    texts.push_back(box_text(local_box(shape, mesh, placements(placement_texts), mesh.coordinate(rank))));
    if (std::find(texts.begin(), texts.end() - 1, texts.back()) != texts.end() - 1) texts.pop_back();
  }
  return texts;
}

template <typename Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const ValueError& error) {
    return error.summary();
  }
  return "accepted";
}

using Texts = std::vector<std::string>;

TEST(Mesh, ParsesNamesAndDegrees) {
  const Mesh mesh = Mesh::parse("dp_shard=2, tp = 3");
  EXPECT_EQ(mesh.names, (Texts{"dp_shard", "tp"}));
  EXPECT_EQ(mesh.sizes, (Dims{2, 3}));
  EXPECT_EQ(mesh.num_ranks(), 6);
}

TEST(Mesh, CountsRanksRowMajor) {
  const Mesh mesh = Mesh::parse("a=2,b=3,c=2");
  EXPECT_EQ(mesh.coordinate(0), (Dims{0, 0, 0}));
  EXPECT_EQ(mesh.coordinate(1), (Dims{0, 0, 1}));
  EXPECT_EQ(mesh.coordinate(2), (Dims{0, 1, 0}));
  EXPECT_EQ(mesh.coordinate(11), (Dims{1, 2, 1}));
}

TEST(Mesh, RefusesWhatIsNoMeshAndNamesThePart) {
  const auto refusal = [](const char* text) { return refusal_of([&] { Mesh::parse(text); }); };
  EXPECT_EQ(refusal(""), "mesh dimension '' has no '=' between name and degree");
  EXPECT_EQ(refusal("dp=2,"), "mesh dimension '' has no '=' between name and degree");
  EXPECT_EQ(refusal("dp=2,tp"), "mesh dimension 'tp' has no '=' between name and degree");
  EXPECT_EQ(refusal("=2"), "mesh dimension '=2' has no name");
  EXPECT_EQ(refusal("dp=0"), "mesh dimension 'dp=0' has no degree of 1 or more");
  EXPECT_EQ(refusal("dp=-1"), "mesh dimension 'dp=-1' has no degree of 1 or more");
  EXPECT_EQ(refusal("dp=2x"), "mesh dimension 'dp=2x' has no degree of 1 or more");
  EXPECT_EQ(refusal("dp="), "mesh dimension 'dp=' has no degree of 1 or more");
  EXPECT_EQ(refusal("dp=99999999999999999999"),
            "mesh dimension 'dp=99999999999999999999' has no degree of 1 or more");
  EXPECT_EQ(refusal("dp=2,dp=2"), "mesh dimension 'dp=2' repeats a name");
  EXPECT_EQ(refusal("dp=1048576,tp=2"), "mesh dimension 'tp=2' makes more than 1048576 ranks");
  EXPECT_EQ(refusal("dp=1048576"), "accepted");
}

TEST(Placement, ParsesWhatTorchPrintsAndPeopleWrite) {
  for (const char* text : {"Replicate", "Replicate()", "R", " R "}) {
    EXPECT_EQ(Placement::parse(text), Placement::replicate()) << text;
  }
  for (const char* text : {"Shard(1)", "Shard(dim=1)", "S(1)", "Shard( dim = 1 )"}) {
    EXPECT_EQ(Placement::parse(text), Placement::shard(1)) << text;
  }
  for (const char* text :
       {"_StridedShard(dim=0, sf=2)", "StridedShard(0, 2)", "StridedShard(0,split_factor=2)"}) {
    EXPECT_EQ(Placement::parse(text), Placement::strided_shard(0, 2)) << text;
  }
}

TEST(Placement, PrintsWhatItParses) {
  for (const char* text : {"Replicate", "Shard(3)", "StridedShard(1, 4)"}) {
    EXPECT_EQ(placement_text(Placement::parse(text)), text);
  }
}

TEST(Placement, RefusesEverythingElse) {
  for (const char* text : {"",
                           "Partial",
                           "Partial(sum)",
                           "shard(0)",
                           "Shard",
                           "Shard()",
                           "Shard(0",
                           "Shard(0))",
                           "Shard(0)x",
                           "Shard(-1)",
                           "Shard(64)",
                           "Shard(0, 2)",
                           "Shard(0,)",
                           "Shard(sf=0)",
                           "Shard(99999999999999999999)",
                           "Replicate(1)",
                           "StridedShard(0)",
                           "StridedShard(0, 0)",
                           "StridedShard(0, -2)",
                           "StridedShard(0, dim=2)",
                           "StridedShard(0, 1048577)",
                           "StridedShard(0, 2, 3)",
                           "Shard(0) Shard(1)"}) {
    EXPECT_THROW(Placement::parse(text), ValueError) << text;
  }
}

// The boxes in the next tests are those of real checkpoints, as torch wrote them (tests/data/dcp).
TEST(LocalBox, EqualsFixtureFsdp) {
  EXPECT_EQ(boxes({8, 6}, "r=2", {"Shard(0)"}), (Texts{"[0:4, 0:6]", "[4:8, 0:6]"}));
  EXPECT_EQ(boxes({7, 5}, "r=2", {"Shard(0)"}), (Texts{"[0:4, 0:5]", "[4:7, 0:5]"}));
  EXPECT_EQ(boxes({1, 9}, "r=2", {"Shard(0)"}), (Texts{"[0:1, 0:9]", "[1:1, 0:9]"}));
  EXPECT_EQ(boxes({13}, "r=2", {"Shard(0)"}), (Texts{"[0:7]", "[7:13]"}));
  EXPECT_EQ(boxes({5, 3, 2}, "r=2", {"Shard(0)"}), (Texts{"[0:3, 0:3, 0:2]", "[3:5, 0:3, 0:2]"}));
  EXPECT_EQ(boxes({0, 4}, "r=2", {"Shard(0)"}), (Texts{"[0:0, 0:4]"})) << "one box, not two";
  EXPECT_EQ(boxes({4, 3}, "r=2", {"Replicate"}), (Texts{"[0:4, 0:3]"}));
  EXPECT_EQ(boxes({10, 8}, "r=4", {"Shard(0)"}),
            (Texts{"[0:3, 0:8]", "[3:6, 0:8]", "[6:9, 0:8]", "[9:10, 0:8]"}));
  EXPECT_EQ(boxes({5, 8}, "r=4", {"Shard(0)"}),
            (Texts{"[0:2, 0:8]", "[2:4, 0:8]", "[4:5, 0:8]", "[5:5, 0:8]"}));
  EXPECT_EQ(boxes({3, 8}, "r=4", {"Shard(0)"}),
            (Texts{"[0:1, 0:8]", "[1:2, 0:8]", "[2:3, 0:8]", "[3:3, 0:8]"}));
  EXPECT_EQ(boxes({2, 8}, "r=4", {"Shard(0)"}), (Texts{"[0:1, 0:8]", "[1:2, 0:8]", "[2:2, 0:8]"}));
  EXPECT_EQ(boxes({9}, "r=4", {"Shard(0)"}), (Texts{"[0:3]", "[3:6]", "[6:9]", "[9:9]"}));
}

TEST(LocalBox, EqualsFixtureMesh2d) {
  const char* const mesh = "dp_shard=2,tp=2";
  const std::string strided = "_StridedShard(dim=0, sf=2)";
  EXPECT_EQ(boxes({16, 12}, mesh, {strided, "Shard(0)"}),
            (Texts{"[0:4, 0:12]", "[8:12, 0:12]", "[4:8, 0:12]", "[12:16, 0:12]"}));
  EXPECT_EQ(boxes({12, 8}, mesh, {"Shard(0)", "Shard(1)"}),
            (Texts{"[0:6, 0:4]", "[0:6, 4:8]", "[6:12, 0:4]", "[6:12, 4:8]"}));
  EXPECT_EQ(boxes({11, 9}, mesh, {"Shard(0)", "Shard(1)"}),
            (Texts{"[0:6, 0:5]", "[0:6, 5:9]", "[6:11, 0:5]", "[6:11, 5:9]"}));
  EXPECT_EQ(boxes({7}, mesh, {"Shard(0)", "Replicate"}), (Texts{"[0:4]", "[4:7]"}));
  EXPECT_EQ(boxes({9}, mesh, {"Replicate", "Shard(0)"}), (Texts{"[0:5]", "[5:9]"}));
  EXPECT_EQ(boxes({4}, mesh, {"Replicate", "Replicate"}), (Texts{"[0:4]"}));
  EXPECT_EQ(boxes({13, 2}, mesh, {"Shard(0)", "Shard(0)"}),
            (Texts{"[0:4, 0:2]", "[4:7, 0:2]", "[7:10, 0:2]", "[10:13, 0:2]"}));
  EXPECT_EQ(boxes({8, 3}, mesh, {strided, "Shard(0)"}),
            (Texts{"[0:2, 0:3]", "[4:6, 0:3]", "[2:4, 0:3]", "[6:8, 0:3]"}));
  EXPECT_EQ(boxes({4, 3, 4}, mesh, {"Shard(0)", "Shard(2)"}),
            (Texts{"[0:2, 0:3, 0:2]", "[0:2, 0:3, 2:4]", "[2:4, 0:3, 0:2]", "[2:4, 0:3, 2:4]"}));
}

TEST(LocalBox, EqualsFixtureExperts) {
  const char* const mesh = "efsdp=2,ep=2";
  EXPECT_EQ(boxes({8, 6, 5}, mesh, {"_StridedShard(dim=0, sf=2)", "Shard(dim=0)"}),
            (Texts{"[0:2, 0:6, 0:5]", "[4:6, 0:6, 0:5]", "[2:4, 0:6, 0:5]", "[6:8, 0:6, 0:5]"}));
  EXPECT_EQ(boxes({8, 3}, mesh, {"Replicate", "Shard(0)"}), (Texts{"[0:4, 0:3]", "[4:8, 0:3]"}));
  EXPECT_EQ(boxes({2, 5, 6}, mesh, {"Shard(1)", "Shard(0)"}),
            (Texts{"[0:1, 0:3, 0:6]", "[1:2, 0:3, 0:6]", "[0:1, 3:5, 0:6]", "[1:2, 3:5, 0:6]"}));
  EXPECT_EQ(boxes({2, 5}, "r=4", {"Shard(0)"}), (Texts{"[0:1, 0:5]", "[1:2, 0:5]", "[2:2, 0:5]"}));
}

// From torch.distributed.tensor._utils, torch 2.13.
TEST(LocalBox, EqualsTorchWhereStridedShardsAreUneven) {
  const std::string strided = "_StridedShard(dim=0, sf=2)";
  EXPECT_EQ(boxes({13}, "dp=2,tp=2", {strided, "Shard(0)"}), (Texts{"[0:4]", "[7:10]", "[4:7]", "[10:13]"}));
  EXPECT_EQ(boxes({6}, "dp=2,tp=2", {strided, "Shard(0)"}), (Texts{"[0:2]", "[3:5]", "[2:3]", "[5:6]"}));
  EXPECT_EQ(boxes({3}, "dp=2,tp=2", {strided, "Shard(0)"}), (Texts{"[0:1]", "[2:3]", "[1:2]", "[3:3]"}));
  EXPECT_EQ(boxes({2}, "dp=4,tp=2", {strided, "Shard(0)"}), (Texts{"[0:1]", "[1:2]", "[2:2]"}));
}

TEST(LocalBox, CutsScalarsByReplicationOnly) {
  const Mesh mesh = Mesh::parse("r=4");
  EXPECT_EQ(local_box({}, mesh, {Placement::replicate()}, Dims{3}), Box{});
  EXPECT_EQ(refusal_of([&] { local_box({}, mesh, {Placement::shard(0)}, Dims{3}); }),
            "Shard(0) names a dimension that shape [] does not have");
}

TEST(LocalBox, RefusesShardsThatAreNotContiguous) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  EXPECT_EQ(
      refusal_of([&] {
        local_box(Dims{16, 2}, mesh, placements({"S(0)", "StridedShard(0, 2)"}), Dims{0, 0});
      }),
      "the rank at [0, 0] would hold indices 0:2 and 4:6 of dimension 0, which one chunk cannot describe");
  EXPECT_THROW(local_box(Dims{16, 2}, Mesh::parse("dp=2"), placements({"StridedShard(0, 2)"}), Dims{1}),
               ValueError);
}

TEST(LocalBox, RefusesWrongDimensionsAndCounts) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  EXPECT_EQ(refusal_of([&] {
              local_box(Dims{4, 4}, mesh, placements({"S(0)", "S(2)"}), Dims{0, 0});
            }),
            "Shard(2) names a dimension that shape [4, 4] does not have");
  EXPECT_EQ(refusal_of([&] {
              local_box(Dims{4, 4}, mesh, placements({"S(0)"}), Dims{0, 0});
            }),
            "1 placements for a mesh of 2 dimensions");
}

TEST(LocalBox, CostsNothingMoreForHugeTensorsAndFactors) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const Mesh mesh = Mesh::parse("a=2,b=2");
  EXPECT_EQ(local_box(Dims{huge, 0}, mesh, placements({"S(0)", "S(0)"}), Dims{0, 0}).sizes[0],
            (huge / 2 + 1) / 2);
  EXPECT_THROW(local_box(Dims{huge}, mesh, placements({"StridedShard(0, 65536)", "StridedShard(0, 65536)"}),
                         Dims{0, 0}),
               ValueError);
}

// How many ranks hold each element; empty when some rank's part is refused.
std::vector<int> copies_of_elements(const Dims& shape, const Mesh& mesh,
                                    const std::vector<Placement>& placed) {
  std::vector<int> copies(static_cast<size_t>(num_elements(shape)), 0);
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    Box box;
    try {
      box = local_box(shape, mesh, placed, mesh.coordinate(rank));
    } catch (const ValueError&) {
      return {};
    }
    EXPECT_TRUE(box_fits(box, shape)) << box_text(box);
    for (int64_t i = box.offsets[0]; i < box.offsets[0] + box.sizes[0]; ++i) {
      for (int64_t j = box.offsets[1]; j < box.offsets[1] + box.sizes[1]; ++j) {
        ++copies[static_cast<size_t>(i * shape[1] + j)];
      }
    }
  }
  return copies;
}

TEST(LocalBox, GivesEachElementToEquallyManyRanks) {
  for (const char* mesh_text : {"a=2,b=3", "a=3,b=2", "a=4,b=1"}) {
    const Mesh mesh = Mesh::parse(mesh_text);
    for (const char* first : {"R", "S(0)", "S(1)", "StridedShard(0, 2)", "StridedShard(0, 3)"}) {
      for (const char* second : {"R", "S(0)", "S(1)"}) {
        for (int64_t rows = 1; rows < 14; ++rows) {
          const std::vector<int> copies = copies_of_elements({rows, 5}, mesh, placements({first, second}));
          if (copies.empty()) continue;
          EXPECT_GE(copies[0], 1);
          EXPECT_EQ(copies, std::vector<int>(copies.size(), copies[0]))
              << mesh_text << " " << first << " " << second << " " << rows;
        }
      }
    }
  }
}

TEST(PlacementRules, AreReadLineByLine) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const auto rules = parse_placement_rules(
      "# attention\n"
      "*.wq.weight  StridedShard(0, 2) Shard(0)   # column-wise\n"
      "\n"
      "  *.wo.weight\tS(0)\tS( 1 )\r\n"
      "*norm*  S(0) R",
      mesh);
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules[0].glob, "*.wq.weight");
  EXPECT_EQ(rules[0].placements, placements({"StridedShard(0, 2)", "S(0)"}));
  EXPECT_EQ(rules[1].placements, placements({"S(0)", "S(1)"}));
  EXPECT_EQ(rules[2].placements, placements({"S(0)", "R"}));
}

TEST(PlacementRules, TheFirstThatMatchesHoldsAndNoneMeansReplicate) {
  const Mesh mesh = Mesh::parse("dp=2");
  const auto rules = parse_placement_rules("a.* S(0)\n*.b S(1)\n", mesh);
  EXPECT_EQ(placements_for("a.b", rules, mesh), placements({"S(0)"}));
  EXPECT_EQ(placements_for("c.b", rules, mesh), placements({"S(1)"}));
  EXPECT_EQ(placements_for("c", rules, mesh), placements({"R"}));
}

TEST(PlacementRules, RefuseABadLineByItsNumber) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const auto refusal = [&](const char* text) {
    return refusal_of([&] { parse_placement_rules(text, mesh); });
  };
  EXPECT_EQ(refusal("a R R\nb R\n"),
            "line 2 of the placement table: 1 placements for a mesh of 2 dimensions");
  EXPECT_EQ(refusal("\n#\na R Shard(x)"),
            "line 3 of the placement table: placement 'Shard(x)' has no tensor dimension from 0 to 63");
  EXPECT_EQ(refusal("a R (R"), "line 1 of the placement table: placement '(R' is not closed properly");
  EXPECT_EQ(refusal("a"), "line 1 of the placement table: 0 placements for a mesh of 2 dimensions");
  EXPECT_EQ(refusal(""), "accepted");
}

}  // namespace
}  // namespace milepost
