// Whether boxes cover a region exactly once, decided exactly for any boxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "milepost/tensor/box.h"

namespace milepost {

// A weighted sum of boxes: the value at a point is the sum of the weights of the boxes that hold it. Boxes
// cover a region exactly once if and only if their sum, with the region itself at weight -1, is zero
// everywhere.
//
// How it is decided: going along one dimension, the sum can only change where a box starts or ends. At each
// such coordinate the change is itself a weighted sum, of cross-sections, in one dimension less: what starts
// counts with its weight, what ends with the opposite. The sum is zero everywhere if and only if every such
// change is. Where one chunk follows another of the same cross-section they cancel at once, so grids,
// whatever dimensions are cut, cost n log n; others up to 2^k as much for k dimensions.
class Tiling {
 public:
  explicit Tiling(size_t ndim) : ndim_(ndim), point_(ndim), levels_(ndim) {}

  void reserve(size_t num_boxes) {
    bounds_.reserve(num_boxes * 2 * ndim_);
    boxes_.reserve(num_boxes);
  }
  // Adds the box [low, high) of ndim coordinates. Requires low < high in each.
  void add(DimsView low, DimsView high, int32_t weight);

  struct Fault {
    Dims point;
    int64_t value;
  };
  // The first point in row-major order where the sum is not zero.
  std::optional<Fault> first_fault();

 private:
  struct Weighted {
    int32_t box, weight;
  };
  struct Event {
    int64_t at;
    Weighted box;
  };
  struct Level {
    std::vector<Event> events;
    std::vector<Weighted> change;
  };
  const int64_t* bounds(int32_t box) const { return bounds_.data() + static_cast<size_t>(box) * 2 * ndim_; }
  bool find_fault(size_t dim, std::span<const Weighted> boxes);
  void find_change(size_t dim, std::span<const Event> events, std::vector<Weighted>* change) const;
  bool cross_section_less(size_t dim, int32_t a, int32_t b) const;
  bool same_cross_section(size_t dim, int32_t a, int32_t b) const;

  size_t ndim_;
  std::vector<int64_t> bounds_;  // low and high of dimension 0, of dimension 1, ... of each box
  std::vector<Weighted> boxes_;
  Dims point_;
  int64_t value_ = 0;
  std::vector<Level> levels_;  // scratch of each depth
};

}  // namespace milepost
