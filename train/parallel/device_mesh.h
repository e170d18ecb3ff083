// The ranks of a job as a mesh with named dimensions, and the groups that talk to each other (spec
// parallelism, sections 1 and 2). Pure: no communication, no torch; any thread may call anything.
//
//   pp            stages of layers
//   dp_replicate  copies of the (sharded) model
//   dp_shard      shards of parameters
//   cp            pieces of each sequence
//   tp            pieces of single matrices
//
// Ranks lie in row-major order, pp slowest, tp fastest. Experts see the same ranks in another shape: within
// one (pp, dp_replicate) pair, dp_shard x cp x tp is also efsdp x ep, ep fastest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/catalog/layout.h"
#include "milepost/config/sections.h"

namespace milepost::train {

// Degrees of parallelism, all filled in.
struct Degrees {
  int64_t pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, ep = 1;

  int64_t world_size() const { return pp * dp_replicate * dp_shard * cp * tp; }
  // Ranks that read different text.
  int64_t data_ranks() const { return dp_replicate * dp_shard; }
  // Ranks over which dense parameters are sharded.
  int64_t fsdp() const { return dp_shard * cp; }
  // Ranks over which the experts of one ep rank are sharded.
  int64_t efsdp() const { return dp_shard * cp * tp / ep; }
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

// A data_parallel_shard_degree of -1 becomes what the others leave of `world_size`. Throws ValueError with
// TorchTitan's words: a degree below 1, a product that is not world_size, an ep that does not divide
// dp_shard x cp x tp.
Degrees resolve_degrees(const config::Parallelism& options, int64_t world_size);

class DeviceMesh {
 public:
  // `rank`: this process's. Throws ValueError when it is not in [0, world_size).
  DeviceMesh(const Degrees& degrees, int64_t rank);

  const Degrees& degrees() const { return degrees_; }
  int64_t rank() const { return rank_; }

  // The mesh in which dense parameters are laid out: pp, dp_replicate, fsdp (dp_shard x cp), tp.
  const Mesh& dense() const { return dense_; }
  // That of routed experts: pp, dp_replicate, efsdp, ep.
  const Mesh& sparse() const { return sparse_; }

  // Ranks that differ from this one only in the named dimension, in order. Names: those of dense() and
  // sparse(), dp_shard, cp, and "batch" (dp_replicate x dp_shard: who reads different text) and "loss"
  // (batch x cp: whose losses add up). Throws ValueError for another name.
  std::vector<int64_t> group(std::string_view dimension) const;
  // This rank's index in group(dimension), and the group's size.
  int64_t coordinate(std::string_view dimension) const;
  int64_t size(std::string_view dimension) const;
  // The groups of all ranks along `dimension`, each once, ordered by their first rank: every rank makes the
  // same list, as process groups must be made in the same order everywhere.
  std::vector<std::vector<int64_t>> all_groups(std::string_view dimension) const;

  // "pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=1, ep=1".
  std::string text() const;
  // Names of the dimensions above 1.
  std::vector<std::string> active_dimensions() const;

 private:
  Degrees degrees_;
  int64_t rank_ = 0;
  Mesh dense_, sparse_;
};

}  // namespace milepost::train
