#include <algorithm>
#include <numeric>

#include "milepost/plan/overlap.h"

namespace milepost {
namespace {

constexpr int64_t kFewChunks = 16;

size_t num_distinct(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return static_cast<size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

}  // namespace

ChunkFinder::ChunkFinder(const Catalog& catalog, int64_t tensor) : catalog_(&catalog), tensor_(tensor) {
  const Catalog::Tensor& t = catalog.tensors()[static_cast<size_t>(tensor)];
  if (t.num_chunks <= kFewChunks) return;
  const auto starts_along = [&](size_t d) {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < t.num_chunks; ++i) {
      starts.push_back(catalog.chunk_box(t, t.first_chunk + i).offsets[d]);
    }
    return starts;
  };
  size_t most = 1;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    const size_t distinct = num_distinct(starts_along(d));
    if (distinct <= most) continue;
    most = distinct;
    dim_ = static_cast<int>(d);
  }
  if (dim_ < 0) return;

  const std::vector<int64_t> starts = starts_along(static_cast<size_t>(dim_));
  order_.resize(starts.size());
  std::iota(order_.begin(), order_.end(), t.first_chunk);
  const auto start = [&](int64_t chunk) { return starts[static_cast<size_t>(chunk - t.first_chunk)]; };
  std::sort(order_.begin(), order_.end(),
            [&](int64_t a, int64_t b) { return start(a) != start(b) ? start(a) < start(b) : a < b; });
  starts_.reserve(order_.size());
  for (int64_t chunk : order_) {
    starts_.push_back(start(chunk));
    longest_ = std::max(longest_, catalog.chunk_box(t, chunk).sizes[static_cast<size_t>(dim_)]);
  }
}

void ChunkFinder::find(const Box& box, std::vector<Hit>* hits) const {
  hits->clear();
  const Catalog::Tensor& tensor = catalog_->tensors()[static_cast<size_t>(tensor_)];
  if (dim_ < 0) {
    for (int64_t i = 0; i < tensor.num_chunks; ++i) try_chunk(tensor.first_chunk + i, box, hits);
    return;
  }
  // A chunk that ends after `low` starts after low - longest_.
  const int64_t low = box.offsets[static_cast<size_t>(dim_)],
                high = low + box.sizes[static_cast<size_t>(dim_)];
  const auto begin = std::upper_bound(starts_.begin(), starts_.end(), low - longest_);
  const auto end = std::lower_bound(begin, starts_.end(), high);
  for (auto it = begin; it < end; ++it)
    try_chunk(order_[static_cast<size_t>(it - starts_.begin())], box, hits);
  std::sort(hits->begin(), hits->end(), [](const Hit& a, const Hit& b) { return a.chunk < b.chunk; });
}

void ChunkFinder::try_chunk(int64_t chunk, const Box& box, std::vector<Hit>* hits) const {
  const Catalog::Tensor& tensor = catalog_->tensors()[static_cast<size_t>(tensor_)];
  const Box stored = catalog_->chunk_box(tensor, chunk);
  if (!box_fits(stored, tensor.shape)) return;
  std::optional<Box> common = intersect(stored, box);
  if (common) hits->push_back({chunk, std::move(*common)});
}

}  // namespace milepost
