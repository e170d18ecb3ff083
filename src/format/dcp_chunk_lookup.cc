#include "format/dcp_chunk_lookup.h"

#include <algorithm>
#include <numeric>

namespace milepost::dcp {

bool ChunkLookup::sort(int64_t tensor) {
  const Catalog::Tensor& t = catalog_.tensors()[static_cast<size_t>(tensor)];
  const size_t ndim = t.shape.size();
  const auto count = static_cast<size_t>(t.num_chunks);
  std::vector<int64_t> offsets;
  offsets.reserve(count * ndim);
  for (int64_t c = 0; c < t.num_chunks; ++c) {
    const Box box = catalog_.chunk_box(t, t.first_chunk + c);
    offsets.insert(offsets.end(), box.offsets.begin(), box.offsets.end());
  }
  const auto row = [&](uint32_t position) { return DimsView(offsets).subspan(position * ndim, ndim); };
  std::vector<uint32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  std::sort(positions.begin(), positions.end(),
            [&](uint32_t a, uint32_t b) { return std::ranges::lexicographical_compare(row(a), row(b)); });
  for (size_t i = 1; i < count; ++i) {
    if (std::ranges::equal(row(positions[i - 1]), row(positions[i]))) return false;
  }
  sorted_[tensor] = std::move(positions);
  return true;
}

int64_t ChunkLookup::find(int64_t tensor, DimsView offsets, int64_t hint) const {
  const Catalog::Tensor& t = catalog_.tensors()[static_cast<size_t>(tensor)];
  if (hint >= 0 && hint < t.num_chunks) {
    if (std::ranges::equal(catalog_.chunk_box(t, t.first_chunk + hint).offsets, offsets)) {
      return t.first_chunk + hint;
    }
  }
  const auto it = sorted_.find(tensor);
  int64_t low = 0, high = t.num_chunks;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t position = it == sorted_.end() ? middle : it->second[static_cast<size_t>(middle)];
    const Box box = catalog_.chunk_box(t, t.first_chunk + position);
    if (std::ranges::equal(box.offsets, offsets)) return t.first_chunk + position;
    if (std::ranges::lexicographical_compare(box.offsets, offsets)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return -1;
}

}  // namespace milepost::dcp
