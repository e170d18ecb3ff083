#include "train/state/shared_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>

#include "milepost/base/error.h"
#include "train/parallel/rank_threads.h"

namespace milepost::train {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 15 << 20;  // of float32: several rounds, the last with some for each rank

// Zeros, up to where it fails.
class FailingSource final : public ByteSource {
 public:
  explicit FailingSource(int64_t fails_from) : fails_from_(fails_from) {}
  int64_t size() const override { return kElements * 4; }
  void read_at(int64_t offset, MutableBytes bytes) const override {
    if (offset + static_cast<int64_t>(bytes.size()) > fails_from_) throw std::runtime_error("");
    std::fill(bytes.begin(), bytes.end(), std::byte{});
  }
  const std::string& name() const override { return name_; }

 private:
  int64_t fails_from_;
  std::string name_ = "source";
};

std::shared_ptr<const Checkpoint> checkpoint_that_fails_from(int64_t byte) {
  Catalog catalog;
  const auto source = std::make_shared<FailingSource>(byte);
  const uint32_t file = catalog.add_file("w", source->size());
  catalog.add_tensor("w", DType::kFloat32, Dims{kElements});
  catalog.add_chunk(Dims{0}, Dims{kElements}, {0, source->size(), file, Location::kRowMajor});
  return Checkpoint::in_memory(std::move(catalog), {source}, {});
}

// An error without a text is an error all the same, wherever in the rounds it comes.
TEST(SharedLoad, AFailureOfOneRankIsThrownOnAll) {
  Degrees degrees;
  degrees.dp_replicate = 2;
  for (const int64_t fails_from : {int64_t{0}, int64_t{17} << 20, kElements * 4 - 1, kElements * 4}) {
    std::mutex mutex;
    int own = 0, told = 0;
    run_ranks(degrees, [&](ProcessGroups& groups) {
      std::vector<float> memory(static_cast<size_t>(kElements), 1);
      LoadPlan plan(checkpoint_that_fails_from(groups.mesh().rank() == 1 ? fails_from : kElements * 4),
                    {{"w",
                      DType::kFloat32,
                      Dims{kElements},
                      Box::whole(Dims{kElements}),
                      reinterpret_cast<std::byte*>(memory.data()),
                      {}}});
      SharedPieces all{"world", {}};
      for (size_t i = 0; i < plan.pieces().size(); ++i) all.pieces.push_back(i);
      SharedLoad load(plan, {all}, &groups);
      try {
        load.carry_out();
        EXPECT_EQ(std::count(memory.begin(), memory.end(), 0.F), kElements);
      } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 failed"));
        const std::lock_guard lock(mutex);
        ++told;
      } catch (const std::runtime_error&) {
        const std::lock_guard lock(mutex);
        ++own;
      }
    });
    const int wanted = fails_from < kElements * 4 ? 1 : 0;
    EXPECT_EQ(own, wanted) << fails_from;
    EXPECT_EQ(told, wanted) << fails_from;
  }
}

}  // namespace
}  // namespace milepost::train
