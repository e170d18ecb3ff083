#include "milepost/tensor/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "milepost/base/checked_math.h"

namespace milepost {

int64_t num_elements(DimsView shape) {
  int64_t product;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  return checked_product(shape, &product) ? product : std::numeric_limits<int64_t>::max();
}

Dims row_major_strides(DimsView shape) {
  Dims strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    // Only the strides of an empty tensor can overflow here, and nothing is ever found by them.
    if (!checked_mul(stride, std::max<int64_t>(shape[d], 1), &stride))
      stride = std::numeric_limits<int64_t>::max();
  }
  return strides;
}

std::string dims_text(DimsView dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

Box Box::whole(DimsView shape) { return {Dims(shape.size(), 0), Dims(shape.begin(), shape.end())}; }

bool Box::empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }

std::string box_text(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    int64_t end;
    text += fmt::format("{}{}:", d == 0 ? "" : ", ", box.offsets[d]);
    text += checked_add(box.offsets[d], box.sizes[d], &end) ? fmt::to_string(end)
                                                            : fmt::format("+{}", box.sizes[d]);
  }
  return text + "]";
}

bool box_fits(const Box& box, DimsView shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!range_fits(box.offsets[d], box.sizes[d], shape[d])) return false;
  }
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box common;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const int64_t low = std::max(a.offsets[d], b.offsets[d]);
    const int64_t high = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    if (low >= high) return std::nullopt;
    common.offsets.push_back(low);
    common.sizes.push_back(high - low);
  }
  return common;
}

std::pair<int64_t, int64_t> chunk_range(int64_t length, int64_t count, int64_t index) {
  const int64_t step = ceil_div(length, count);
  if (step == 0 || index >= ceil_div(length, step)) return {length, 0};
  const int64_t begin = step * index;
  return {begin, std::min(step, length - begin)};
}

// The range is peeled from both ends, one dimension at a time: in dimension d, positions before `begin`'s
// next row and after `end`'s last row belong to partial rows, which the following dimensions split further.
void split_linear_range(DimsView sizes, int64_t begin, int64_t end, std::vector<Box>* boxes) {
  boxes->clear();
  if (begin >= end) return;
  const size_t ndim = sizes.size();
  if (ndim == 0) {
    boxes->push_back({});
    return;
  }
  const Dims strides = row_major_strides(sizes);
  std::vector<Box> tail;
  // Emits a run of rows [first, last) of dimension d under fixed outer coordinates taken from linear position
  // `at`.
  const auto rows = [&](size_t d, int64_t at, int64_t count) {
    Box box;
    int64_t rest = at;
    for (size_t k = 0; k < ndim; ++k) {
      box.offsets.push_back(k <= d ? rest / strides[k] : 0);
      box.sizes.push_back(k < d ? 1 : k == d ? count : sizes[k]);
      rest %= strides[k];
    }
    return box;
  };
  int64_t low = begin, high = end;
  for (size_t d = ndim; d-- > 0;) {
    // Within dimension d, [low, high) is aligned to strides[d]. Everything inside one outer row is emitted at
    // once.
    const int64_t outer = d == 0 ? strides[0] * sizes[0] : strides[d - 1];
    const int64_t next = round_up(low, outer), last = round_down(high, outer);
    if (d == 0 || next > last || (next == last && low == next && high == last)) {
      if (low < high) boxes->push_back(rows(d, low, (high - low) / strides[d]));
      break;
    }
    if (low < next) boxes->push_back(rows(d, low, (next - low) / strides[d]));
    if (last < high) tail.push_back(rows(d, last, (high - last) / strides[d]));
    low = next;
    high = last;
    if (low >= high) break;
  }
  boxes->insert(boxes->end(), tail.rbegin(), tail.rend());
}

}  // namespace milepost
