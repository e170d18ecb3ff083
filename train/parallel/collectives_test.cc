#include "train/parallel/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/parallel/rank_threads.h"

namespace milepost::train {
namespace {

using ::testing::ElementsAre;

Degrees shards(int64_t count) {
  Degrees degrees;
  degrees.dp_shard = count;
  return degrees;
}

at::Tensor numbered(int64_t rank, at::IntArrayRef shape, at::ScalarType dtype) {
  return (at::arange(c10::multiply_integers(shape), at::kFloat) * 0.37 + static_cast<double>(rank) * 1.7)
      .view(shape)
      .to(dtype);
}

class Collectives : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4));

TEST_P(Collectives, GatherInOrder) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      const at::Tensor all = at::empty({group.size(), 5}, dtype);
      group.all_gather(all, numbered(group.index(), {5}, dtype))->wait();
      for (int64_t rank = 0; rank < group.size(); ++rank) {
        EXPECT_TRUE(at::equal(all.select(0, rank), numbered(rank, {5}, dtype)));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterAddsInRankOrder) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor own = at::empty({7}, dtype);
      reduce_scatter(group, own, numbered(group.index(), {group.size() * 7}, dtype))->wait();
      at::Tensor want;
      for (int64_t rank = 0; rank < group.size(); ++rank) {
        const at::Tensor piece =
            numbered(rank, {group.size() * 7}, dtype).narrow(0, group.index() * 7, 7).to(at::kFloat);
        want = want.defined() ? want + piece : piece;
      }
      EXPECT_TRUE(at::equal(own, want.to(dtype)));
    }
  });
}

TEST_P(Collectives, AllReduceOfAnySize) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    for (const int64_t size : {1, 3, 1000, 1001}) {
      const at::Tensor value = numbered(group.index(), {size}, at::kFloat);
      all_reduce(group, value);
      at::Tensor want = numbered(0, {size}, at::kFloat);
      for (int64_t rank = 1; rank < group.size(); ++rank) want = want + numbered(rank, {size}, at::kFloat);
      EXPECT_TRUE(at::equal(value, want)) << size;
    }
    EXPECT_EQ(all_reduce(group, static_cast<double>(group.index()), Reduction::kMax),
              static_cast<double>(group.size() - 1));
  });
}

TEST_P(Collectives, AllToAllOfUnevenPieces) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    const int64_t me = group.index(), size = group.size();
    // Rank r sends r + j rows of value r * 10 + j to rank j.
    std::vector<int64_t> send_sizes, receive_sizes;
    std::vector<at::Tensor> rows;
    for (int64_t other = 0; other < size; ++other) {
      send_sizes.push_back(me + other);
      receive_sizes.push_back(me + other);
      rows.push_back(at::full({me + other, 3}, static_cast<double>(me * 10 + other)));
    }
    const at::Tensor send = at::cat(rows), receive = at::empty({send.size(0), 3});
    group.all_to_all(receive, receive_sizes, send, send_sizes)->wait();
    for (int64_t other = 0, first = 0; other < size; first += me + other, ++other) {
      EXPECT_TRUE(
          receive.narrow(0, first, me + other).eq(static_cast<double>(other * 10 + me)).all().item<bool>());
    }
  });
}

TEST_P(Collectives, StringsOfAnyLength) {
  run_ranks(shards(GetParam()), [](ProcessGroups& groups) {
    Group& group = groups.group("fsdp");
    const std::string mine(static_cast<size_t>(group.index() * 3), 'x');
    const std::vector<std::string> all = all_gather_strings(group, mine);
    for (size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank].size(), rank * 3);
    EXPECT_THAT(all_gather_strings(group, ""), ::testing::Each(""));
    EXPECT_EQ(broadcast_string(group, group.index() == 0 ? std::string("a\0b", 3) : "", 0).size(), 3U);
  });
}

TEST(Collectives, GroupsOfAMeshTalkAmongThemselves) {
  Degrees degrees;
  degrees.dp_replicate = degrees.dp_shard = 2;
  run_ranks(degrees, [](ProcessGroups& groups) {
    const auto sum_over = [&](const char* name) {
      return all_reduce(groups.group(name), static_cast<double>(groups.mesh().rank()));
    };
    const int64_t rank = groups.mesh().rank();
    EXPECT_EQ(sum_over("fsdp"), rank < 2 ? 1 : 5);
    EXPECT_EQ(sum_over("dp_replicate"), rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(sum_over("world"), 6);
  });
}

TEST(Collectives, ALatePeerIsAnErrorThatNamesTheOperation) {
  try {
    run_ranks(shards(2), [](ProcessGroups& groups) {
      Group& group = groups.group("fsdp");
      if (group.index() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        return;
      }
      group.set_timeout(std::chrono::milliseconds(300));
      const at::Tensor all = at::empty({2, 1});
      group.all_gather(all, at::zeros({1}))->wait();
    });
    FAIL() << "no error";
  } catch (const CommunicationError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("all-gather over fsdp (2 ranks) failed"));
  }
}

TEST(FakeGroup, StandsForRanksThatAreNotThere) {
  const auto group = make_fake_group("fsdp", {0, 1, 2, 3}, 2);
  EXPECT_THAT(group->ranks(), ElementsAre(0, 1, 2, 3));
  const at::Tensor all = at::empty({4, 2});
  group->all_gather(all, at::ones({2}))->wait();
  EXPECT_TRUE(all.eq(1).all().item<bool>());
  group->barrier();
}

}  // namespace
}  // namespace milepost::train
