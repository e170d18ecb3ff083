#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"

namespace milepost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

void add_whole(LocalPlan* plan, std::string_view name, const Dims& shape, DType dtype = DType::kFloat32) {
  plan->add_tensor(name, dtype, shape, Box::whole(shape));
}

void add_rows(LocalPlan* plan, std::string_view name, const Dims& shape, int64_t num_ranks, int64_t rank) {
  Box box = Box::whole(shape);
  std::tie(box.offsets[0], box.sizes[0]) = chunk_range(shape[0], num_ranks, rank);
  plan->add_tensor(name, DType::kFloat32, shape, box);
}

ValueError refusal(const std::vector<LocalPlan>& ranks) {
  try {
    plan_global(ranks);
  } catch (const ValueError& error) {
    return error;
  }
  ADD_FAILURE() << "was planned";
  return ValueError("");
}

// The rank that writes each of rank 0's items, which all ranks propose.
std::vector<int> owners(const GlobalPlan& plan, size_t num_items) {
  std::vector<int> out(num_items, -1);
  for (size_t rank = 0; rank < plan.writes.size(); ++rank) {
    for (int32_t item : plan.writes[rank]) {
      EXPECT_EQ(out[static_cast<size_t>(item)], -1);
      out[static_cast<size_t>(item)] = static_cast<int>(rank);
    }
  }
  return out;
}

std::vector<std::string> entry_names(const Catalog& catalog) {
  const auto views = catalog.names_in_order();
  return {views.begin(), views.end()};
}

// Measured with torch 2.13 (spec dcp-format, section 4).
TEST(PlanGlobal, GivesReplicatedItemsToTheLeastLoadedRank) {
  LocalPlan plan;
  const int64_t sizes[] = {100, 10, 10, 200, 5, 5, 5, 300};
  for (size_t i = 0; i < std::size(sizes); ++i) add_whole(&plan, "v" + std::to_string(i), {sizes[i]});
  plan.add_object("o0");
  plan.add_object("o1");
  EXPECT_THAT(owners(plan_global(std::vector<LocalPlan>(4, plan)), 10),
              ElementsAre(0, 1, 2, 3, 1, 2, 1, 2, 1, 1));
}

TEST(PlanGlobal, CountsTheWholeTensorForEachShard) {
  std::vector<LocalPlan> ranks(2);
  add_rows(&ranks[0], "w", {4}, 2, 0);
  add_whole(&ranks[0], "a", {3});
  add_whole(&ranks[0], "b", {1});
  add_rows(&ranks[1], "w", {4}, 2, 1);
  add_whole(&ranks[1], "a", {3});
  add_whole(&ranks[1], "b", {1});
  // Rank 0's shard counts 16 bytes, so rank 1, whose own is visited last, is the emptier one for a (12) and
  // for b.
  const GlobalPlan plan = plan_global(ranks);
  EXPECT_THAT(plan.writes, ElementsAre(ElementsAre(0), ElementsAre(0, 1, 2)));
}

TEST(PlanGlobal, ListsEntriesAsTheRanksThatWriteThemDo) {
  LocalPlan plan;
  add_whole(&plan, "a", {1});
  plan.add_object("o");
  add_whole(&plan, "b", {1});
  add_whole(&plan, "c", {0});
  const GlobalPlan all = plan_global({plan, plan});
  // a (4) to 0, o (1) to 1, b (4) to 1, c (1) to 0.
  EXPECT_THAT(all.writes, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  EXPECT_THAT(entry_names(all.catalog), ElementsAre("a", "c", "o", "b"));
  EXPECT_THAT(all.targets, ElementsAre(ElementsAre(0, 1), ElementsAre(-1, 2)));
  EXPECT_EQ(all.catalog.tensors()[2].name, "b");
}

TEST(PlanGlobal, ListsChunksInOrderOfRankAndItem) {
  std::vector<LocalPlan> ranks(3);
  const auto add = [&](size_t rank, int64_t row) {
    ranks[rank].add_tensor("w", DType::kInt8, Dims{4, 2}, {{row, 0}, {1, 2}});
  };
  add(0, 3);
  add(0, 1);
  add(1, 1);
  add(1, 0);
  add(2, 2);
  const GlobalPlan plan = plan_global(ranks);
  const Catalog::Tensor& w = plan.catalog.tensors()[0];
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < w.num_chunks; ++i) rows.push_back(plan.catalog.chunk_box(w, i).offsets[0]);
  EXPECT_THAT(plan.writes, ElementsAre(ElementsAre(0), ElementsAre(0, 1), ElementsAre(0)));
  EXPECT_THAT(rows, ElementsAre(3, 1, 0, 2));
  EXPECT_THAT(plan.targets, ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_EQ(plan.catalog.chunk_location(0).file, Location::kNoFile);
}

TEST(PlanGlobal, DropsEmptyChunksOfTensorsThatHaveOthers) {
  std::vector<LocalPlan> ranks(5);
  for (int64_t r = 0; r < 5; ++r) add_rows(&ranks[static_cast<size_t>(r)], "w", {3, 2}, 5, r);
  const GlobalPlan plan = plan_global(ranks);
  EXPECT_THAT(plan.writes,
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(0), ElementsAre(), ElementsAre()));
  EXPECT_EQ(plan.catalog.num_chunks(), 3);
}

TEST(PlanGlobal, KeepsOneChunkOfATensorWithoutElements) {
  std::vector<LocalPlan> ranks(3);
  for (int64_t r = 0; r < 3; ++r) {
    add_rows(&ranks[static_cast<size_t>(r)], "none", {0, 4}, 3, r);
    add_rows(&ranks[static_cast<size_t>(r)], "columns of nothing", {3, 0}, 3, r);
  }
  const GlobalPlan plan = plan_global(ranks);
  ASSERT_EQ(plan.catalog.tensors().size(), 2u);
  EXPECT_EQ(plan.catalog.tensors()[0].num_chunks, 1);
  EXPECT_EQ(plan.catalog.tensors()[1].num_chunks, 1);
}

TEST(PlanGlobal, TakesNamesThatOnlySomeRanksHave) {
  std::vector<LocalPlan> ranks(3);
  for (size_t r = 0; r < 3; ++r) {
    ranks[r].add_object("loader." + std::to_string(r));
    if (r != 1) add_whole(&ranks[r], "w", {2});
    ranks[r].add_object("step");
  }
  const GlobalPlan plan = plan_global(ranks);
  EXPECT_EQ(plan.catalog.objects().size(), 4u);
  EXPECT_EQ(plan.catalog.tensors().size(), 1u);
  EXPECT_EQ(plan_global({}).catalog.num_chunks(), 0);
}

TEST(PlanGlobal, RefusesRanksThatDisagree) {
  LocalPlan whole, other_shape, other_dtype, object, part;
  add_whole(&whole, "w", {4});
  add_whole(&other_shape, "w", {5});
  add_whole(&other_dtype, "w", {4}, DType::kInt32);
  object.add_object("w");
  part.add_tensor("w", DType::kFloat32, Dims{4}, {{0}, {2}});
  for (const LocalPlan* other : {&other_shape, &other_dtype, &object, &part}) {
    EXPECT_EQ(refusal({whole, *other}).key(), "w");
    EXPECT_EQ(refusal({*other, whole}).key(), "w");
  }
  EXPECT_THAT(refusal({whole, object}).what(), HasSubstr("rank 0 proposes float32 [4], rank 1 an object"));
  // Also where the place is not the furthest so far.
  LocalPlan halves, wrong;
  halves.add_tensor("w", DType::kFloat32, Dims{4}, {{0}, {2}});
  halves.add_tensor("w", DType::kFloat32, Dims{4}, {{2}, {2}});
  wrong.add_tensor("w", DType::kFloat32, Dims{4}, {{0}, {1}});
  EXPECT_EQ(refusal({halves, wrong}).key(), "w");
}

TEST(PlanGlobal, RefusesBoxesThatDoNotMakeTheTensor) {
  std::vector<LocalPlan> ranks(2);
  ranks[0].add_tensor("w", DType::kInt8, Dims{4}, {{0}, {2}});
  EXPECT_THAT(refusal(ranks).what(), HasSubstr("elements 2:4 are in no chunk"));
  EXPECT_EQ(refusal(ranks).key(), "w");
  ranks[1].add_tensor("w", DType::kInt8, Dims{4}, {{1}, {3}});
  EXPECT_THAT(refusal(ranks).what(), HasSubstr("[0:2] and [1:4] overlap"));
  ranks[1] = {};
  ranks[1].add_tensor("w", DType::kInt8, Dims{4}, {{2}, {3}});
  EXPECT_THAT(refusal(ranks).what(), HasSubstr("leaves the tensor"));
}

TEST(PlanGlobal, RefusesShapesWithoutASize) {
  LocalPlan plan;
  const int64_t huge = int64_t{1} << 40;
  plan.add_tensor("w", DType::kInt8, Dims{huge, huge}, Box::whole(Dims{huge, huge}));
  EXPECT_EQ(refusal({plan}).key(), "w");
}

// torch's algorithm (dedup_save_plans, create_default_global_save_plan) as it is written there, on maps.
struct Reference {
  std::vector<std::vector<int32_t>> writes;
  std::vector<std::string> order;

  explicit Reference(const std::vector<LocalPlan>& ranks) : writes(ranks.size()) {
    using Place = std::pair<std::string, std::vector<int64_t>>;
    std::vector<Place> places;
    std::map<Place, std::vector<size_t>> proposers;
    std::map<Place, int64_t> load;
    std::map<std::string, bool> has_elements;
    const auto place_of = [](const LocalPlan& plan, const LocalPlan::Item& item) {
      const DimsView offsets = plan.offsets(item);
      return Place(std::string(plan.names()[item.name]),
                   std::vector<int64_t>(offsets.begin(), offsets.end()));
    };
    const auto is_empty = [](const LocalPlan& plan, const LocalPlan::Item& item) {
      return num_elements(plan.sizes(item)) == 0;
    };
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const LocalPlan::Item& item : ranks[rank].items()) {
        const Place place = place_of(ranks[rank], item);
        if (!proposers.contains(place)) places.push_back(place);
        proposers[place].push_back(rank);
        const int64_t bytes = num_elements(ranks[rank].shape(item)) * dtype_size(item.dtype);
        load[place] = item.ndim < 0 || bytes == 0 ? 1 : bytes;
        has_elements[place.first] |= !is_empty(ranks[rank], item);
      }
    }
    std::vector<int64_t> loads(ranks.size());
    std::map<Place, size_t> owner;
    for (const Place& place : places) {
      const std::vector<size_t>& from = proposers[place];
      owner[place] = *std::min_element(from.begin(), from.end(),
                                       [&](size_t a, size_t b) { return loads[a] < loads[b]; });
      loads[owner[place]] += load[place];
    }
    std::map<std::string, int> kept;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (size_t i = 0; i < ranks[rank].items().size(); ++i) {
        const LocalPlan::Item& item = ranks[rank].items()[i];
        const Place place = place_of(ranks[rank], item);
        if (owner[place] != rank) continue;
        if (is_empty(ranks[rank], item) && (has_elements[place.first] || kept[place.first] > 0)) continue;
        if (kept[place.first]++ == 0) order.push_back(place.first);
        writes[rank].push_back(static_cast<int32_t>(i));
      }
    }
  }
};

// Names in the ranks' own orders; each tensor replicated, cut by rows or in a grid, over ranks in any order.
std::vector<LocalPlan> random_plans(Random& random) {
  const int64_t num_ranks = pick(random, 1, 9);
  std::vector<LocalPlan> ranks(static_cast<size_t>(num_ranks));
  struct Entry {
    std::string name;
    int64_t kind;
    Dims shape;
    std::vector<int64_t> rank_order;
  };
  std::vector<Entry> entries;
  for (int64_t i = pick(random, 0, 12); i > 0; --i) {
    Entry entry{"n" + std::to_string(i), pick(random, 0, 4), {pick(random, 0, 9), pick(random, 0, 5)}, {}};
    for (int64_t r = 0; r < num_ranks; ++r) entry.rank_order.push_back(r);
    if (pick(random, 0, 1) == 0) std::shuffle(entry.rank_order.begin(), entry.rank_order.end(), random);
    entries.push_back(std::move(entry));
  }
  const bool shuffle_names = pick(random, 0, 2) == 0;
  for (int64_t r = 0; r < num_ranks; ++r) {
    LocalPlan& plan = ranks[static_cast<size_t>(r)];
    if (shuffle_names) std::shuffle(entries.begin(), entries.end(), random);
    for (const Entry& entry : entries) {
      const int64_t place = entry.rank_order[static_cast<size_t>(r)];
      if (entry.kind == 0) plan.add_object(entry.name);
      if (entry.kind == 1) add_whole(&plan, entry.name, {});
      if (entry.kind == 2) add_whole(&plan, entry.name, entry.shape);
      if (entry.kind == 3) add_rows(&plan, entry.name, entry.shape, num_ranks, place);
      if (entry.kind ==
          4) {  // rows over pairs of ranks, columns inside a pair; a last odd rank repeats rank 0's
        const int64_t pairs = std::max<int64_t>(num_ranks / 2, 1), pair = place / 2 % pairs;
        const int64_t in_pair = num_ranks == 1 ? 1 : 2;
        Box box;
        for (const auto& [offset, size] : {chunk_range(entry.shape[0], pairs, pair),
                                           chunk_range(entry.shape[1], in_pair, place % in_pair)}) {
          box.offsets.push_back(offset);
          box.sizes.push_back(size);
        }
        plan.add_tensor(entry.name, DType::kFloat32, entry.shape, box);
      }
    }
    if (pick(random, 0, 3) == 0) plan.add_object("only " + std::to_string(r));
  }
  return ranks;
}

TEST(PlanGlobal, AgreesWithTorchsAlgorithm) {
  Random random(99);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<LocalPlan> ranks = random_plans(random);
    const Reference expected(ranks);
    const GlobalPlan plan = plan_global(ranks);
    ASSERT_EQ(plan.writes, expected.writes) << round;
    ASSERT_EQ(entry_names(plan.catalog), expected.order) << round;
    int64_t targets = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_EQ(plan.targets[rank].size(), plan.writes[rank].size());
      for (size_t i = 0; i < plan.writes[rank].size(); ++i, ++targets) {
        const LocalPlan::Item& item = ranks[rank].items()[static_cast<size_t>(plan.writes[rank][i])];
        const std::string_view name = ranks[rank].names()[item.name];
        const int64_t target = plan.targets[rank][i];
        if (target < 0) {
          ASSERT_EQ(plan.catalog.objects()[static_cast<size_t>(-1 - target)].name, name);
          continue;
        }
        const Catalog::Tensor& tensor =
            plan.catalog.tensors()[static_cast<size_t>(*plan.catalog.find_tensor(name))];
        ASSERT_GE(target, tensor.first_chunk);
        ASSERT_LT(target, tensor.first_chunk + tensor.num_chunks);
        ASSERT_TRUE(
            std::ranges::equal(plan.catalog.chunk_box(tensor, target).offsets, ranks[rank].offsets(item)));
        ASSERT_TRUE(
            std::ranges::equal(plan.catalog.chunk_box(tensor, target).sizes, ranks[rank].sizes(item)));
      }
    }
    ASSERT_EQ(targets, plan.catalog.num_chunks() + static_cast<int64_t>(plan.catalog.objects().size()));
  }
}

}  // namespace
}  // namespace milepost
