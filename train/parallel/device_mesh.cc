#include "train/parallel/device_mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

// A dimension as a range of strides: the ranks first + i * stride, i < size, where `first` is the rank with
// coordinate 0.
struct Axis {
  int64_t size = 1, stride = 1;
};

Axis find_axis(const Degrees& d, std::string_view name) {
  const int64_t inner = d.dp_shard * d.cp * d.tp;
  if (name == "pp") return {d.pp, d.dp_replicate * inner};
  if (name == "dp_replicate") return {d.dp_replicate, inner};
  if (name == "dp_shard") return {d.dp_shard, d.cp * d.tp};
  if (name == "fsdp") return {d.fsdp(), d.tp};
  if (name == "cp") return {d.cp, d.tp};
  if (name == "tp") return {d.tp, 1};
  if (name == "batch") return {d.data_ranks(), d.cp * d.tp};
  if (name == "loss") return {d.data_ranks() * d.cp, d.tp};
  if (name == "efsdp") return {d.efsdp(), d.ep};
  if (name == "ep") return {d.ep, 1};
  throw ValueError(fmt::format("the mesh has no dimension '{}'", name));
}

std::vector<int64_t> ranks_of(const Axis& axis, int64_t member) {
  const int64_t first = member - member / axis.stride % axis.size * axis.stride;
  std::vector<int64_t> ranks(static_cast<size_t>(axis.size));
  for (int64_t i = 0; i < axis.size; ++i) ranks[static_cast<size_t>(i)] = first + i * axis.stride;
  return ranks;
}

void require(bool condition, const std::string& text, std::string_view hint) {
  if (!condition) throw ValueError(text, std::string(hint));
}

}  // namespace

Degrees resolve_degrees(const config::Parallelism& options, int64_t world_size) {
  Degrees d;
  d.pp = options.pipeline_parallel_degree;
  d.dp_replicate = options.data_parallel_replicate_degree;
  d.cp = options.context_parallel_degree;
  d.tp = options.tensor_parallel_degree;
  d.ep = options.expert_parallel_degree;
  for (const int64_t degree : {d.pp, d.dp_replicate, d.cp, d.tp, d.ep}) {
    require(degree >= 1 && degree <= kMaxRanks, "Parallelism degree should be >= 1, except for dp_shard",
            "set every degree from 1 on");
  }
  d.dp_shard = options.data_parallel_shard_degree;
  require(d.dp_shard == -1 || (d.dp_shard >= 1 && d.dp_shard <= kMaxRanks), "dp_shard must -1 or >=1.",
          "-1 takes all ranks that the other degrees leave");
  // Degrees are at most 2^20 each; where the others already exceed the world, the product is not formed.
  int64_t others = 1;
  for (const int64_t degree : {d.pp, d.dp_replicate, d.cp, d.tp}) {
    others = others > world_size ? others : others * degree;
  }
  if (d.dp_shard == -1) d.dp_shard = others == 0 ? 0 : world_size / others;
  require(d.dp_shard >= 1 && others <= world_size && others * d.dp_shard == world_size,
          fmt::format("Invalid parallel dims: dp_replicate({}) * dp_shard({}) * cp({}) * tp({}) * pp({}) != "
                      "WORLD_SIZE({})",
                      d.dp_replicate, options.data_parallel_shard_degree, d.cp, d.tp, d.pp, world_size),
          "make the product of the degrees equal to the number of processes");
  const int64_t inner = d.dp_shard * d.cp * d.tp;
  require(inner % d.ep == 0,
          fmt::format("Mesh 'efsdp' has unexpected size: expert_parallel_degree({}) does not divide "
                      "dp_shard({}) * cp({}) * tp({}) = {}",
                      d.ep, d.dp_shard, d.cp, d.tp, inner),
          "experts borrow their ranks from dp_shard, cp and tp");
  return d;
}

DeviceMesh::DeviceMesh(const Degrees& degrees, int64_t rank) : degrees_(degrees), rank_(rank) {
  const int64_t world = degrees.world_size();
  if (rank < 0 || rank >= world) {
    throw ValueError(fmt::format("rank {} is not one of the {} ranks of the job", rank, world));
  }
  dense_ = {{"pp", "dp_replicate", "fsdp", "tp"},
            {degrees.pp, degrees.dp_replicate, degrees.fsdp(), degrees.tp}};
  sparse_ = {{"pp", "dp_replicate", "efsdp", "ep"},
             {degrees.pp, degrees.dp_replicate, degrees.efsdp(), degrees.ep}};
}

std::vector<int64_t> DeviceMesh::group(std::string_view dimension) const {
  return ranks_of(find_axis(degrees_, dimension), rank_);
}

int64_t DeviceMesh::coordinate(std::string_view dimension) const {
  const Axis axis = find_axis(degrees_, dimension);
  return rank_ / axis.stride % axis.size;
}

int64_t DeviceMesh::size(std::string_view dimension) const { return find_axis(degrees_, dimension).size; }

std::vector<std::vector<int64_t>> DeviceMesh::all_groups(std::string_view dimension) const {
  const Axis axis = find_axis(degrees_, dimension);
  std::vector<std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < degrees_.world_size(); ++rank) {
    if (rank / axis.stride % axis.size == 0) groups.push_back(ranks_of(axis, rank));
  }
  return groups;
}

std::string DeviceMesh::text() const {
  return fmt::format("pp={}, dp_replicate={}, dp_shard={}, cp={}, tp={}, ep={}", degrees_.pp,
                     degrees_.dp_replicate, degrees_.dp_shard, degrees_.cp, degrees_.tp, degrees_.ep);
}

std::vector<std::string> DeviceMesh::active_dimensions() const {
  std::vector<std::string> active;
  for (const char* name : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"}) {
    if (size(name) > 1) active.emplace_back(name);
  }
  return active;
}

}  // namespace milepost::train
