#include "train/parallel/redistribute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/parallel/rank_threads.h"

namespace milepost::train {
namespace {

const std::vector<Spread> kSpreads = {Spread::replicate(), Spread::shard(0), Spread::shard(1),
                                      Spread::partial()};

at::Tensor whole_of(at::IntArrayRef shape, double seed) {
  return (at::arange(c10::multiply_integers(shape), at::kFloat) * 0.61 + seed).sin().view(shape);
}

// A rank's part of `whole`; partial tensors add up to it, with a different share on each rank.
at::Tensor part_of(const at::Tensor& whole, Spread spread, const Group& group) {
  switch (spread.kind) {
    case Spread::Kind::kReplicate:
      return whole.clone();
    case Spread::Kind::kShard: {
      const ShardRows own = shard_rows(whole.size(spread.dim), group.size(), group.index());
      return whole.narrow(spread.dim, own.begin, own.count).contiguous();
    }
    case Spread::Kind::kPartial: {
      const double share = static_cast<double>(group.index() + 1);
      const double total = static_cast<double>(group.size() * (group.size() + 1)) / 2;
      return whole * (share / total);
    }
  }
  return whole;
}

// The whole tensor that parts stand for.
at::Tensor whole_from(const at::Tensor& part, at::IntArrayRef shape, Spread spread, Group& group) {
  return start_redistribute(part, shape, spread, Spread::replicate(), group).wait();
}

Degrees shards(int64_t count) {
  Degrees degrees;
  degrees.dp_shard = count;
  return degrees;
}

class RedistributeTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RedistributeTest, ::testing::Values(1, 2, 3, 4));

TEST_P(RedistributeTest, EveryPairStandsForTheSameTensor) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    for (const auto& shape : std::vector<std::vector<int64_t>>{{8, 12}, {5, 3}, {1, 7}, {2, 9, 3}}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const at::Tensor whole = whole_of(shape, 0.3).to(dtype);
        for (const Spread from : kSpreads) {
          for (const Spread to : kSpreads) {
            const at::Tensor moved = redistribute(part_of(whole, from, group), shape, from, to, group);
            EXPECT_EQ(moved.sizes().vec(), local_shape(shape, to, group));
            const at::Tensor again = whole_from(moved, shape, to, group);
            const double tolerance = dtype == at::kFloat ? 1e-6 : 2e-2;
            EXPECT_TRUE(at::allclose(again.to(at::kFloat), whole.to(at::kFloat), tolerance, tolerance))
                << static_cast<int>(from.kind) << from.dim << " to " << static_cast<int>(to.kind) << to.dim;
          }
        }
      }
    }
  });
}

// Moves are linear, so a directional difference is exact: the loss, summed over ranks, changes by the product
// of gradient and direction.
TEST_P(RedistributeTest, GradientsAreThoseOfTheSummedLoss) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    const std::vector<int64_t> shape = {5, 7};
    for (const Spread from : kSpreads) {
      for (const Spread to : kSpreads) {
        at::Tensor local = part_of(whole_of(shape, 0.1), from, group).requires_grad_();
        const at::Tensor moved = redistribute(local, shape, from, to, group);
        // Each rank weighs its result in its own way.
        const at::Tensor weights = whole_of(moved.sizes(), 1.0 + static_cast<double>(group.index()));
        (moved * weights).sum().backward();
        const at::Tensor direction = part_of(whole_of(shape, 2.7), from, group);
        const at::Tensor step = start_redistribute(direction, shape, from, to, group).wait();
        const double change = all_reduce(group, (step * weights).sum().item<double>());
        const double product = all_reduce(group, (local.grad() * direction).sum().item<double>());
        EXPECT_NEAR(change, product, 1e-4)
            << static_cast<int>(from.kind) << from.dim << " to " << static_cast<int>(to.kind) << to.dim;
      }
    }
  });
}

TEST(Redistribute, RefusesWhatIsNoPart) {
  const auto group = make_single_group("fsdp", 0);
  const at::Tensor tensor = at::zeros({3, 4});
  EXPECT_THROW(redistribute(tensor, {4, 4}, Spread::replicate(), Spread::shard(0), *group), ValueError);
  EXPECT_THROW(redistribute(tensor, {3, 4}, Spread::replicate(), Spread::shard(2), *group), ValueError);
}

}  // namespace
}  // namespace milepost::train
