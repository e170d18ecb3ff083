#include "milepost/engine/snapshot.h"

#include <gtest/gtest.h>

#include <numeric>

#include "milepost/engine/load.h"
#include "milepost/engine/save.h"

namespace milepost {
namespace {

Bytes bytes_of(const std::vector<float>& values, size_t first, size_t count) {
  return std::as_bytes(std::span(values).subspan(first, count));
}

TEST(Snapshot, IsSavedFromWhereItLies) {
  // Rows 0, 1 and 4, 5 of the memory are one tensor, rows 2, 3 another.
  std::vector<float> memory(12);
  std::iota(memory.begin(), memory.end(), 0.0F);
  SnapshotBuilder builder;
  builder.add_tensor("a", DType::kFloat32, Dims{4, 2}, Box::whole(Dims{4, 2}));
  builder.add_piece({{0, 0}, {2, 2}}, bytes_of(memory, 0, 4));
  builder.add_piece({{2, 0}, {2, 2}}, bytes_of(memory, 8, 4));
  builder.add_object("n", builder.values().integer(7));
  builder.add_tensor("b", DType::kFloat32, Dims{2, 2}, Box::whole(Dims{2, 2}));
  builder.add_piece({{0, 0}, {2, 2}}, bytes_of(memory, 4, 4));
  builder.add_tensor("scalar", DType::kFloat32, Dims{}, Box::whole(Dims{}));
  builder.add_piece({{}, {}}, bytes_of(memory, 3, 1));
  Snapshot snapshot = std::move(builder).finish();
  EXPECT_EQ(order_of_proposals({snapshot.plan}), (std::vector<std::string>{"a", "n", "b", "scalar"}));

  const StorageLocation where{memory_storage(), "/checkpoint"};
  memory[3] = 30;  // what is written is what lies there when it is written
  save_dcp(where, {snapshot.plan}, {snapshot.checkpoint}, {}, false);
  const auto saved = Checkpoint::open(where);
  EXPECT_EQ(saved->catalog().num_chunks(), 3);  // pieces of memory are no chunks of the checkpoint
  std::vector<float> a(8), scalar(1);
  load(
      saved,
      {{"a", DType::kFloat32, {4, 2}, Box::whole(Dims{4, 2}), reinterpret_cast<std::byte*>(a.data()), {}},
       {"scalar", DType::kFloat32, {}, Box::whole(Dims{}), reinterpret_cast<std::byte*>(scalar.data()), {}}});
  EXPECT_EQ(a, (std::vector<float>{0, 1, 2, 30, 8, 9, 10, 11}));
  EXPECT_EQ(scalar[0], 30);
  EXPECT_EQ(saved->read_object(*saved->catalog().find_object("n")).value->as_int(), 7);
}

}  // namespace
}  // namespace milepost
