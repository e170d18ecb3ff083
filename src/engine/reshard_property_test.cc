// Property: whatever is saved by one random mesh and placements loads bit for bit under any other.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "milepost/catalog/layout.h"
#include "milepost/engine/load.h"
#include "milepost/engine/save.h"
#include "milepost/engine/verify.h"

namespace milepost {
namespace {

using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Tensor {
  std::string name;
  DType dtype;
  Dims shape;
  ByteVector bytes;  // row-major
};

Tensor random_tensor(Random& random, int64_t index) {
  Tensor tensor{"t" + std::to_string(index), {}, {}, {}};
  do {
    tensor.dtype = static_cast<DType>(pick(random, 0, kNumDTypes - 1));
  } while (!dtype_info(tensor.dtype).in_torch);
  const int64_t ndim = pick(random, 0, 4);
  for (int64_t d = 0; d < ndim; ++d)
    tensor.shape.push_back(pick(random, 0, 20) == 0 ? 0 : pick(random, 1, 13));
  tensor.bytes.resize(static_cast<size_t>(*dtype_bytes(tensor.dtype, num_elements(tensor.shape))));
  for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
  return tensor;
}

Mesh random_mesh(Random& random) {
  static constexpr std::array<const char*, 3> kNames = {"dp", "fsdp", "tp"};
  Mesh mesh;
  const int64_t ndim = pick(random, 1, 3);
  for (int64_t d = 0; d < ndim; ++d) {
    mesh.names.push_back(kNames[static_cast<size_t>(d)]);
    mesh.sizes.push_back(pick(random, 1, ndim == 1 ? 6 : 3));
  }
  return mesh;
}

// Placements that DCP can describe for every rank of the mesh.
std::vector<Placement> random_placements(Random& random, DimsView shape, const Mesh& mesh) {
  const auto ndim = static_cast<int64_t>(shape.size());
  for (;;) {
    std::vector<Placement> placements;
    for (size_t d = 0; d < mesh.sizes.size(); ++d) {
      const int64_t kind = ndim == 0 ? 0 : pick(random, 0, 3);
      const auto dim = static_cast<int>(ndim == 0 ? 0 : pick(random, 0, ndim - 1));
      if (kind == 0) placements.push_back(Placement::replicate());
      if (kind == 1 || kind == 2) placements.push_back(Placement::shard(dim));
      if (kind == 3) placements.push_back(Placement::strided_shard(dim, pick(random, 2, 3)));
    }
    try {
      LocalPlan all;
      std::vector<LocalPlan> plans(static_cast<size_t>(mesh.num_ranks()));
      for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
        plans[static_cast<size_t>(rank)].add_tensor(
            "t", DType::kInt8, shape, local_box(shape, mesh, placements, mesh.coordinate(rank)));
      }
      plan_global(plans);
      return placements;
    } catch (const ValueError&) {  // a strided shard that is not contiguous, or overlaps: choose again
    }
  }
}

// What a rank holds in memory: its box of every tensor, row-major.
struct RankMemory {
  std::vector<Box> boxes;
  std::vector<ByteVector> bytes;
};

ByteVector cut(const Tensor& tensor, const Box& box) {
  const int64_t size = dtype_size(tensor.dtype);
  ByteVector out(static_cast<size_t>(box.num_elements() * size));
  const Dims strides = row_major_strides(tensor.shape), dense = row_major_strides(box.sizes);
  for (int64_t i = 0; i < box.num_elements(); ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = 0; d < dense.size(); ++d) {
      at += (box.offsets[d] + rest / dense[d]) * strides[d];
      rest %= dense[d];
    }
    std::memcpy(out.data() + i * size, tensor.bytes.data() + at * size, static_cast<size_t>(size));
  }
  return out;
}

std::vector<RankMemory> distribute(Random& random, const std::vector<Tensor>& tensors, const Mesh& mesh) {
  std::vector<RankMemory> ranks(static_cast<size_t>(mesh.num_ranks()));
  for (const Tensor& tensor : tensors) {
    const auto placements = random_placements(random, tensor.shape, mesh);
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      RankMemory& memory = ranks[static_cast<size_t>(rank)];
      memory.boxes.push_back(local_box(tensor.shape, mesh, placements, mesh.coordinate(rank)));
      memory.bytes.push_back(cut(tensor, memory.boxes.back()));
    }
  }
  return ranks;
}

void save(const StorageLocation& where, const std::vector<Tensor>& tensors,
          const std::vector<RankMemory>& ranks, int files_per_rank) {
  std::vector<LocalPlan> plans;
  std::vector<std::shared_ptr<const Checkpoint>> sources;
  for (const RankMemory& rank : ranks) {
    LocalPlan plan;
    Catalog catalog;
    std::vector<std::shared_ptr<const ByteSource>> files;
    for (size_t t = 0; t < tensors.size(); ++t) {
      plan.add_tensor(tensors[t].name, tensors[t].dtype, tensors[t].shape, rank.boxes[t]);
      const uint32_t file = catalog.add_file(tensors[t].name, static_cast<int64_t>(rank.bytes[t].size()));
      catalog.add_tensor(tensors[t].name, tensors[t].dtype, tensors[t].shape);
      catalog.add_chunk(rank.boxes[t].offsets, rank.boxes[t].sizes,
                        {0, static_cast<int64_t>(rank.bytes[t].size()), file, Location::kRowMajor});
      files.push_back(std::make_shared<MemorySource>(Bytes(rank.bytes[t]), tensors[t].name));
    }
    plans.push_back(std::move(plan));
    sources.push_back(Checkpoint::in_memory(std::move(catalog), std::move(files), {}));
  }
  WriteOptions options;
  options.files_per_rank = files_per_rank;
  save_dcp(where, plans, sources, options, false);
}

TEST(ReshardProperty, LoadsBitForBitUnderAnyOtherLayout) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<Tensor> tensors;
    const int64_t count = pick(random, 1, 4);
    for (int64_t i = 0; i < count; ++i) tensors.push_back(random_tensor(random, i));
    const std::shared_ptr<Storage> storage = memory_storage();
    const StorageLocation where{storage, "/checkpoint"};
    save(where, tensors, distribute(random, tensors, random_mesh(random)),
         static_cast<int>(pick(random, 1, 3)));

    const auto checkpoint = Checkpoint::open(where);
    std::vector<RankMemory> wanted = distribute(random, tensors, random_mesh(random));
    for (RankMemory& rank : wanted) {
      std::vector<ByteVector> memory;
      std::vector<LoadTarget> targets;
      for (size_t t = 0; t < tensors.size(); ++t) {
        memory.emplace_back(rank.bytes[t].size(), std::byte{0xa5});
        targets.push_back(
            {tensors[t].name, tensors[t].dtype, tensors[t].shape, rank.boxes[t], memory.back().data(), {}});
      }
      load(checkpoint, targets);
      for (size_t t = 0; t < tensors.size(); ++t) ASSERT_EQ(memory[t], rank.bytes[t]) << tensors[t].name;
    }
  }
}

}  // namespace
}  // namespace milepost
