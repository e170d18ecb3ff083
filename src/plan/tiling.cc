#include "plan/tiling.h"

#include <algorithm>

namespace milepost {

void Tiling::add(DimsView low, DimsView high, int32_t weight) {
  for (size_t d = 0; d < ndim_; ++d) {
    bounds_.push_back(low[d]);
    bounds_.push_back(high[d]);
  }
  boxes_.push_back({static_cast<int32_t>(boxes_.size()), weight});
}

std::optional<Tiling::Fault> Tiling::first_fault() {
  if (!find_fault(0, boxes_)) return std::nullopt;
  return Fault{point_, value_};
}

bool Tiling::find_fault(size_t dim, std::span<const Weighted> boxes) {
  if (dim == ndim_) {
    value_ = 0;
    for (const Weighted& box : boxes) value_ += box.weight;
    return value_ != 0;
  }
  Level& level = levels_[dim];
  const auto start = [&](const Weighted& box) { return Event{bounds(box.box)[2 * dim], box}; };
  const auto end_of = [&](const Weighted& box) {
    return Event{bounds(box.box)[2 * dim + 1], {box.box, -box.weight}};
  };
  // The region comes first, so boxes in order along the only dimension that is cut give events in order.
  level.events.assign(1, start(boxes[0]));
  for (const Weighted& box : boxes.subspan(1)) {
    level.events.push_back(start(box));
    level.events.push_back(end_of(box));
  }
  level.events.push_back(end_of(boxes[0]));
  const auto earlier = [](const Event& a, const Event& b) { return a.at < b.at; };
  if (!std::is_sorted(level.events.begin(), level.events.end(), earlier)) {
    std::sort(level.events.begin(), level.events.end(), earlier);
  }
  const std::span<const Event> events(level.events);
  for (size_t begin = 0, end; begin < events.size(); begin = end) {
    end = begin + 1;
    while (end < events.size() && events[end].at == events[begin].at) ++end;
    find_change(dim + 1, events.subspan(begin, end - begin), &level.change);
    if (level.change.empty()) continue;
    point_[dim] = events[begin].at;
    if (find_fault(dim + 1, level.change)) return true;
  }
  return false;
}

// The boxes of `events` with those of equal cross-section in the dimensions from `dim` on summed up, zeros
// left out.
void Tiling::find_change(size_t dim, std::span<const Event> events, std::vector<Weighted>* change) const {
  change->clear();
  if (events.size() == 2 && events[0].box.weight + events[1].box.weight == 0 &&
      same_cross_section(dim, events[0].box.box, events[1].box.box)) {
    return;
  }
  for (const Event& event : events) change->push_back(event.box);
  if (dim < ndim_) {
    std::sort(change->begin(), change->end(),
              [&](const Weighted& a, const Weighted& b) { return cross_section_less(dim, a.box, b.box); });
  }
  size_t kept = 0;
  for (size_t i = 0; i < change->size();) {
    Weighted sum = (*change)[i++];
    while (i < change->size() && same_cross_section(dim, (*change)[i].box, sum.box))
      sum.weight += (*change)[i++].weight;
    if (sum.weight != 0) (*change)[kept++] = sum;
  }
  change->resize(kept);
}

bool Tiling::cross_section_less(size_t dim, int32_t a, int32_t b) const {
  return std::lexicographical_compare(bounds(a) + 2 * dim, bounds(a) + 2 * ndim_, bounds(b) + 2 * dim,
                                      bounds(b) + 2 * ndim_);
}

bool Tiling::same_cross_section(size_t dim, int32_t a, int32_t b) const {
  return std::equal(bounds(a) + 2 * dim, bounds(a) + 2 * ndim_, bounds(b) + 2 * dim);
}

}  // namespace milepost
