#include "milepost/catalog/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "milepost/base/error.h"

namespace milepost {
namespace {

// Some of the indices of one tensor dimension, in the order in which a rank holds them.
class IndexList {
 public:
  struct Run {
    int64_t begin, end;
  };
  using Runs = std::vector<Run>;

  explicit IndexList(int64_t size) { append({0, size}); }

  int64_t size() const {
    return std::accumulate(runs_.begin(), runs_.end(), int64_t{0},
                           [](int64_t sum, const Run& run) { return sum + (run.end - run.begin); });
  }
  const Runs& runs() const { return runs_; }

  // Keeps piece `index` of `count` of each of `parts` parts, by torch.chunk's rule both times.
  void cut(int64_t parts, int64_t count, int64_t index) {
    const int64_t length = size();
    const Runs all = std::exchange(runs_, {});
    Cursor cursor{all.begin(), 0};
    for (int64_t part = 0; part < parts; ++part) {
      const auto [part_begin, part_size] = chunk_range(length, parts, part);
      if (part_size == 0) break;
      const auto [begin, size] = chunk_range(part_size, count, index);
      append_slice(cursor, part_begin + begin, size);
    }
  }

 private:
  // A run of the list being cut and the position of its first index; slices are taken in order, so it only
  // advances.
  struct Cursor {
    Runs::const_iterator run;
    int64_t position;
  };

  void append(Run run) {
    if (run.begin == run.end) return;
    if (!runs_.empty() && runs_.back().end == run.begin) {
      runs_.back().end = run.end;
    } else {
      runs_.push_back(run);
    }
  }

  void append_slice(Cursor& from, int64_t position, int64_t size) {
    while (size > 0) {
      const int64_t length = from.run->end - from.run->begin;
      const int64_t skipped = position - from.position;
      if (skipped >= length) {
        from.position += length;
        ++from.run;
        continue;
      }
      const int64_t taken = std::min(size, length - skipped);
      append({from.run->begin + skipped, from.run->begin + skipped + taken});
      position += taken;
      size -= taken;
    }
  }

  Runs runs_;
};

bool is_shard(const Placement& placement) { return placement.kind != Placement::Kind::kReplicate; }

void check_placements(DimsView shape, const Mesh& mesh, const std::vector<Placement>& placements) {
  if (placements.size() != mesh.sizes.size()) {
    throw ValueError(
        fmt::format("{} placements for a mesh of {} dimensions", placements.size(), mesh.sizes.size()),
        "give one placement for each mesh dimension");
  }
  for (const Placement& placement : placements) {
    if (!is_shard(placement)) continue;
    if (placement.dim < 0 || static_cast<size_t>(placement.dim) >= shape.size()) {
      throw ValueError(fmt::format("{} names a dimension that shape {} does not have",
                                   placement_text(placement), dims_text(shape)),
                       "replicate this tensor or shard one of its dimensions");
    }
  }
}

[[noreturn]] void refuse_gap(const IndexList::Runs& runs, size_t dim, DimsView coordinate) {
  throw ValueError(
      fmt::format("the rank at {} would hold indices {}:{} and {}:{} of dimension {}, which one chunk cannot "
                  "describe",
                  dims_text(coordinate), runs[0].begin, runs[0].end, runs[1].begin, runs[1].end, dim),
      "where two mesh dimensions cut one tensor dimension, use Shard twice, or StridedShard with the other's "
      "degree as "
      "split factor and then Shard");
}

}  // namespace

Dims Mesh::coordinate(int64_t rank) const {
  assert(rank >= 0 && rank < num_ranks());
  Dims coordinate(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    coordinate[d] = rank % sizes[d];
    rank /= sizes[d];
  }
  return coordinate;
}

Box local_box(DimsView shape, const Mesh& mesh, const std::vector<Placement>& placements,
              DimsView coordinate) {
  check_placements(shape, mesh, placements);
  assert(coordinate.size() == mesh.sizes.size());
  Box box = Box::whole(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto cuts = [&](const Placement& p) { return is_shard(p) && static_cast<size_t>(p.dim) == d; };
    if (std::none_of(placements.begin(), placements.end(), cuts)) continue;
    IndexList indices(shape[d]);
    for (size_t m = 0; m < placements.size(); ++m) {
      if (cuts(placements[m])) indices.cut(placements[m].split_factor, mesh.sizes[m], coordinate[m]);
    }
    if (indices.runs().size() > 1) refuse_gap(indices.runs(), d, coordinate);
    box.offsets[d] = indices.runs().empty() ? shape[d] : indices.runs()[0].begin;
    box.sizes[d] = indices.size();
  }
  return box;
}

}  // namespace milepost
