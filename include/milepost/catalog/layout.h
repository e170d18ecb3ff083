// Layouts: a device mesh and placements, and the boxes that follow from them (spec dcp-format, section 5).
//
// A mesh arranges ranks in named dimensions; a placement says how one of these dimensions treats a tensor.
// Both are plain values that come from flags and files of a person's, so what is wrong with them is a
// ValueError that quotes the part. Everything here is a pure function; any thread may call it.
#pragma once

#include <cstdint>
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
  // Requires 0 <= rank < num_ranks().
  Dims coordinate(int64_t rank) const;
  // Parses "dp_shard=2,tp=2". Throws ValueError naming the part that is wrong (a degree < 1, a repeated name,
  // more than kMaxRanks ranks).
  static Mesh parse(std::string_view text);
};
inline constexpr int64_t kMaxRanks = int64_t{1} << 20;

// How one mesh dimension treats a tensor: every rank along it has all, or each has a piece of tensor
// dimension `dim`.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int dim = 0;               // tensor dimension, for shards
  int64_t split_factor = 1;  // for strided shards

  static Placement replicate() { return {}; }
  static Placement shard(int dim) { return {Kind::kShard, dim, 1}; }
  static Placement strided_shard(int dim, int64_t split_factor) {
    return {Kind::kStridedShard, dim, split_factor};
  }
  // Parses what torch prints and people write: "Replicate()", "Replicate", "R", "Shard(dim=0)", "Shard(0)",
  // "S(0)",
  // "_StridedShard(dim=0, sf=2)", "StridedShard(0, 2)". Throws ValueError.
  static Placement parse(std::string_view text);
  friend bool operator==(const Placement&, const Placement&) = default;
};

// "Replicate", "Shard(0)", "StridedShard(0, 2)": what parse() takes back.
std::string placement_text(const Placement& placement);

// The box that the rank at `coordinate` holds. For each tensor dimension the index list 0..n-1 is cut by the
// mesh dimensions from left to right: Shard by torch.chunk's rule, StridedShard by cutting into split_factor
// parts first and each of these by that rule. An empty shard starts at the end of its dimension (offset n,
// size 0), as torch's. Requires: coordinate inside the mesh. Throws ValueError when the result is not one
// contiguous range in some dimension (a DCP chunk cannot describe it), when a placement's dim is not one of
// the tensor's, or when there are not as many placements as mesh dimensions. Cost: O(mesh dimensions * split
// factor), whatever the tensor's size.
Box local_box(DimsView shape, const Mesh& mesh, const std::vector<Placement>& placements,
              DimsView coordinate);

// A glob over names -> one placement per mesh dimension.
struct PlacementRule {
  std::string glob;
  std::vector<Placement> placements;
};

// Reads the table of `--placements`: one rule a line, `GLOB PLACEMENT...` (as many placements as the mesh has
// dimensions); '#' starts a comment. Throws ValueError with the line number.
std::vector<PlacementRule> parse_placement_rules(std::string_view text, const Mesh& mesh);

// The placements of the first rule whose glob matches; Replicate everywhere when none does.
std::vector<Placement> placements_for(std::string_view name, const std::vector<PlacementRule>& rules,
                                      const Mesh& mesh);

// Shell-style match over the whole name: `*` any run (dots too), `?` one character, `[abc]`, `[a-z]`, `[!x]`,
// `{a,b}` (may be nested and hold wildcards), `\x` the character x itself. Brackets and braces that are not
// closed stand for themselves. Characters are UTF-8; a byte that is not is a character of its own. Cost: at
// most glob length * name length, and a comparison where there is no wildcard; never exponential.
bool glob_match(std::string_view glob, std::string_view name);

}  // namespace milepost
