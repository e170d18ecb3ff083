// Faults of the chunks of each tensor.
//
// 1. Chunks that leave the tensor are faults; what lies inside still counts.
// 2. Tiling decides over the dimensions that some chunk cuts, and names a point covered twice or not at all.
// 3. The chunks at the point, or the hole around it, are reported and mended: what is covered twice is taken
//    from the later chunk, a hole gets a piece of its own. The search goes on until it finds nothing.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "milepost/base/checked_math.h"
#include "milepost/plan/save_plan.h"
#include "plan/tiling.h"

namespace milepost {
namespace {

// Boxes that one tensor's search may look at: well under a second. Only many faults in many chunks get there.
constexpr int64_t kMaxVisits = 2'000'000;

// A part of a chunk, or of no chunk (-1) where a hole was mended.
struct Piece {
  Box box;
  int64_t chunk;
};

bool contains(const Box& box, DimsView point) {
  for (size_t d = 0; d < point.size(); ++d) {
    if (point[d] < box.offsets[d] || point[d] - box.offsets[d] >= box.sizes[d]) return false;
  }
  return true;
}

// What of a box, whose numbers may be anything, lies inside the shape; an empty box for nothing.
Box clipped(const Box& box, DimsView shape) {
  Box inside = box;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t end;
    if (!checked_add(box.offsets[d], box.sizes[d], &end)) end = box.sizes[d] < 0 ? 0 : shape[d];
    inside.offsets[d] = std::max<int64_t>(box.offsets[d], 0);
    end = std::min(end, shape[d]);
    inside.sizes[d] = inside.offsets[d] < end ? end - inside.offsets[d] : 0;
  }
  return inside;
}

// `whole` without `part`, which lies inside it, as boxes.
std::vector<Box> difference(Box whole, const Box& part) {
  std::vector<Box> boxes;
  for (size_t d = 0; d < whole.sizes.size(); ++d) {
    const int64_t begin = whole.offsets[d], end = begin + whole.sizes[d];
    const int64_t part_begin = part.offsets[d], part_end = part_begin + part.sizes[d];
    if (begin < part_begin) {
      boxes.push_back(whole);
      boxes.back().sizes[d] = part_begin - begin;
    }
    if (part_end < end) {
      boxes.push_back(whole);
      boxes.back().offsets[d] = part_end;
      boxes.back().sizes[d] = end - part_end;
    }
    whole.offsets[d] = part_begin;
    whole.sizes[d] = part.sizes[d];
  }
  return boxes;
}

std::string hole_text(const Box& hole, DimsView shape) {
  if (shape.empty()) return "its only element is in no chunk";
  Box rows = Box::whole(shape);
  rows.offsets[0] = hole.offsets[0];
  rows.sizes[0] = hole.sizes[0];
  if (!(hole == rows)) return fmt::format("{} is in no chunk", box_text(hole));
  return fmt::format("{} {}:{} are in no chunk", shape.size() == 1 ? "elements" : "rows", hole.offsets[0],
                     hole.offsets[0] + hole.sizes[0]);
}

class TensorCheck {
 public:
  TensorCheck(const Catalog& catalog, int64_t tensor, int64_t max_faults, std::vector<CoverageFault>* faults)
      : catalog_(catalog),
        index_(tensor),
        tensor_(catalog.tensors()[static_cast<size_t>(tensor)]),
        max_faults_(max_faults),
        faults_(faults) {}

  void run() {
    gather();
    const bool has_elements = std::find(tensor_.shape.begin(), tensor_.shape.end(), 0) == tensor_.shape.end();
    if (!has_elements) return;
    for (int64_t visits = 0; !full();) {
      if (!find_fault()) return;
      if (visits > kMaxVisits) {
        faults_->back().text += "; more faults of this tensor are not listed";
        return;
      }
      visits += static_cast<int64_t>(pieces_.size() + 1);
      if (value_ > 0) {
        report_overlaps();
      } else {
        report_hole();
      }
    }
  }

 private:
  bool full() const { return static_cast<int64_t>(faults_->size()) >= max_faults_; }

  void add_fault(CoverageFault::Kind kind, int64_t chunk_a, int64_t chunk_b, std::string text) {
    if (!full()) faults_->push_back({kind, index_, chunk_a, chunk_b, std::move(text)});
  }

  // The chunks' parts inside the tensor, and the dimensions that they cut.
  void gather() {
    const Box whole = Box::whole(tensor_.shape);
    std::vector<bool> is_cut(whole.sizes.size(), false);
    pieces_.reserve(static_cast<size_t>(tensor_.num_chunks));
    for (int64_t chunk = tensor_.first_chunk; chunk < tensor_.first_chunk + tensor_.num_chunks; ++chunk) {
      pieces_.push_back({catalog_.chunk_box(tensor_, chunk), chunk});
      Box& box = pieces_.back().box;
      if (!box_fits(box, tensor_.shape)) {
        add_fault(CoverageFault::Kind::kOutOfBounds, chunk, -1,
                  fmt::format("the chunk of sizes {} at offsets {} leaves the tensor, whose shape is {}",
                              dims_text(box.sizes), dims_text(box.offsets), dims_text(tensor_.shape)));
        box = clipped(box, tensor_.shape);
      }
      if (box.empty()) {
        pieces_.pop_back();
        continue;
      }
      for (size_t d = 0; d < is_cut.size(); ++d) is_cut[d] = is_cut[d] || box.sizes[d] != whole.sizes[d];
    }
    for (size_t d = 0; d < is_cut.size(); ++d) {
      if (is_cut[d]) cut_.push_back(d);
    }
  }

  // Whether a point is not covered exactly once: point_, and value_ how often too much.
  bool find_fault() {
    Tiling tiling(cut_.size());
    tiling.reserve(pieces_.size() + 1);
    Dims low(cut_.size()), high(cut_.size());
    for (size_t k = 0; k < cut_.size(); ++k) high[k] = tensor_.shape[cut_[k]];
    tiling.add(low, high, -1);
    for (const Piece& piece : pieces_) {
      for (size_t k = 0; k < cut_.size(); ++k) {
        low[k] = piece.box.offsets[cut_[k]];
        high[k] = low[k] + piece.box.sizes[cut_[k]];
      }
      tiling.add(low, high, 1);
    }
    const std::optional<Tiling::Fault> fault = tiling.first_fault();
    if (!fault) return false;
    value_ = fault->value;
    point_.assign(tensor_.shape.size(), 0);
    for (size_t k = 0; k < cut_.size(); ++k) point_[cut_[k]] = fault->point[k];
    return true;
  }

  // The first chunk at the point keeps it.
  void report_overlaps() {
    std::vector<Piece> here;
    std::erase_if(pieces_, [&](Piece& piece) {
      if (!contains(piece.box, point_)) return false;
      here.push_back(std::move(piece));
      return true;
    });
    std::sort(here.begin(), here.end(), [](const Piece& a, const Piece& b) { return a.chunk < b.chunk; });
    for (size_t i = 1; i < here.size(); ++i) {
      const Box common = *intersect(here[0].box, here[i].box);
      if (reported_.emplace(here[0].chunk, here[i].chunk).second) {
        add_fault(
            CoverageFault::Kind::kOverlap, here[0].chunk, here[i].chunk,
            fmt::format("chunks {} and {} overlap", box_text(catalog_.chunk_box(tensor_, here[0].chunk)),
                        box_text(catalog_.chunk_box(tensor_, here[i].chunk))));
      }
      for (Box& rest : difference(here[i].box, common)) pieces_.push_back({std::move(rest), here[i].chunk});
    }
    pieces_.push_back(std::move(here[0]));
  }

  // The hole grows from the point, along the last dimension first, until pieces are in its way.
  void report_hole() {
    Box hole = Box::whole(tensor_.shape);
    for (size_t d : cut_) {
      hole.offsets[d] = point_[d];
      hole.sizes[d] = 1;
    }
    for (size_t k = cut_.size(); k-- > 0;) {
      const size_t d = cut_[k];
      int64_t begin = 0, end = tensor_.shape[d];
      hole.offsets[d] = begin;
      hole.sizes[d] = end;
      for (const Piece& piece : pieces_) {
        if (!intersect(hole, piece.box)) continue;
        const int64_t piece_begin = piece.box.offsets[d], piece_end = piece_begin + piece.box.sizes[d];
        if (piece_begin > point_[d]) end = std::min(end, piece_begin);
        if (piece_end <= point_[d]) begin = std::max(begin, piece_end);
      }
      hole.offsets[d] = begin;
      hole.sizes[d] = end - begin;
    }
    add_fault(CoverageFault::Kind::kHole, -1, -1,
              pieces_.empty() ? "the tensor has no chunk" : hole_text(hole, tensor_.shape));
    pieces_.push_back({std::move(hole), -1});
  }

  const Catalog& catalog_;
  int64_t index_;
  const Catalog::Tensor& tensor_;
  int64_t max_faults_;
  std::vector<CoverageFault>* faults_;
  std::vector<Piece> pieces_;
  std::vector<size_t> cut_;
  std::set<std::pair<int64_t, int64_t>> reported_;
  std::vector<int64_t> point_;
  int64_t value_ = 0;
};

}  // namespace

std::vector<CoverageFault> check_coverage(const Catalog& catalog, int64_t max_faults) {
  std::vector<CoverageFault> faults;
  const auto num_tensors = static_cast<int64_t>(catalog.tensors().size());
  for (int64_t tensor = 0; tensor < num_tensors && static_cast<int64_t>(faults.size()) < max_faults;
       ++tensor) {
    TensorCheck(catalog, tensor, max_faults, &faults).run();
  }
  return faults;
}

}  // namespace milepost
