// Layouts: a device mesh and placements, and the boxes that follow from them (spec dcp-format, section 5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/tensor/box.h"

namespace milepost {

// Named dimensions, slowest first: rank = row-major index of the coordinate.
struct Mesh {
  std::vector<std::string> names;
  Dims sizes;

  int64_t num_ranks() const { return num_elements(sizes); }
  Dims coordinate(int64_t rank) const;
  // Parses "dp_shard=2,tp=2". Throws ValueError naming the part that is wrong (a degree < 1, a repeated name, more than 2^20 ranks).
  static Mesh parse(std::string_view text);
};

// How one mesh dimension treats a tensor.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int dim = 0;               // tensor dimension, for shards
  int64_t split_factor = 1;  // for strided shards

  static Placement replicate() { return {}; }
  static Placement shard(int dim) { return {Kind::kShard, dim, 1}; }
  static Placement strided_shard(int dim, int64_t split_factor) { return {Kind::kStridedShard, dim, split_factor}; }
  // Parses "Replicate", "R", "Shard(0)", "S(0)", "StridedShard(0, 2)", "_StridedShard(dim=0, sf=2)". Throws ValueError.
  static Placement parse(std::string_view text);
  friend bool operator==(const Placement&, const Placement&) = default;
};
std::string placement_text(const Placement& placement);

// The box that the rank at `coordinate` holds: for each tensor dimension the index list 0..n-1 is cut by the mesh dimensions from left to right, Shard by
// torch.chunk's rule, StridedShard by cutting into split_factor parts first. An empty shard starts at the end of its dimension.
// Throws ValueError when the result is not one contiguous range a dimension (DCP cannot describe it), when a dim is out of range, or when
// placements.size() != mesh dims.
Box local_box(DimsView shape, const Mesh& mesh, const std::vector<Placement>& placements, DimsView coordinate);

// A glob over names -> one placement per mesh dimension; the first rule that matches a name holds, names that no rule matches are replicated.
struct PlacementRule {
  std::string glob;
  std::vector<Placement> placements;
};

// Reads the table of `--placements`: one rule a line, `GLOB PLACEMENT...` (as many placements as the mesh has dimensions), '#' starts a comment.
// Throws ValueError with the line number.
std::vector<PlacementRule> parse_placement_rules(std::string_view text, const Mesh& mesh);
std::vector<Placement> placements_for(std::string_view name, const std::vector<PlacementRule>& rules, const Mesh& mesh);

// Shell-style match over the whole name: `*` any run (dots too), `?` one character, `[abc]`, `[a-z]`, `[!x]`, `{a,b}`; linear in practice, never exponential.
bool glob_match(std::string_view glob, std::string_view name);

}  // namespace milepost
