// How an array is read:
//
// 1. Dimensions are put in storage order (source stride descending), those of size 1 dropped, neighbours
// merged where they are contiguous on both sides.
// 2. A run that is contiguous on both sides and at least kLongRun is read straight to its place.
// 3. Shorter runs: the range that covers as many rows as the window holds is read into the window and the
// elements are copied out, so that bytes between the runs are read too...
// 4. ...unless rows lie further apart than kFarApart, where skipping the gap is cheaper than reading it.
// 5. Memory needs no window: elements are copied from where they are.
#include "engine/strided_read.h"

#include <algorithm>

#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kLongRun = 16 << 10;
constexpr int64_t kFarApart = 64 << 10;

StridedArray in_storage_order(const StridedArray& array) {
  boost::container::small_vector<size_t, 8> order;
  for (size_t d = 0; d < array.sizes.size(); ++d) {
    if (array.sizes[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return array.src_strides[a] > array.src_strides[b]; });
  StridedArray out{array.file, array.offset, {}, {}, array.dst, {}, array.element_size};
  for (size_t d : order) {
    const int64_t size = array.sizes[d], src = array.src_strides[d], dst = array.dst_strides[d];
    if (!out.sizes.empty() && out.src_strides.back() == src * size && out.dst_strides.back() == dst * size) {
      out.sizes.back() *= size;
      out.src_strides.back() = src;
      out.dst_strides.back() = dst;
    } else {
      out.sizes.push_back(size);
      out.src_strides.push_back(src);
      out.dst_strides.push_back(dst);
    }
  }
  return out;
}

// Bytes from the first to the last element of dimensions `dim` and later.
int64_t span_bytes(const StridedArray& array, size_t dim) {
  int64_t span = array.element_size;
  for (size_t d = dim; d < array.sizes.size(); ++d) span += (array.sizes[d] - 1) * array.src_strides[d];
  return span;
}

bool is_long_run(const StridedArray& array) {
  return array.src_strides.back() == array.element_size && array.dst_strides.back() == array.element_size &&
         array.sizes.back() * array.element_size >= kLongRun;
}

void copy_rows(const StridedArray& array, size_t dim, int64_t rows, std::byte* dst, const std::byte* src) {
  Dims sizes(array.sizes.begin() + static_cast<std::ptrdiff_t>(dim), array.sizes.end());
  sizes[0] = rows;
  const auto from = [dim](const Dims& dims) { return DimsView(dims.data() + dim, dims.size() - dim); };
  copy_strided(dst, from(array.dst_strides), src, from(array.src_strides), sizes, array.element_size);
}

}  // namespace

void StridedReader::fetch(const ByteSource& file, int64_t offset, MutableBytes dst) {
  file.read_at(offset, dst);
  bytes_read_ += static_cast<int64_t>(dst.size());
}

void StridedReader::read(const StridedArray& array) {
  if (std::find(array.sizes.begin(), array.sizes.end(), 0) != array.sizes.end()) return;
  const StridedArray ordered = in_storage_order(array);
  const auto element_size = static_cast<size_t>(array.element_size);
  if (ordered.sizes.empty()) return fetch(*array.file, array.offset, {array.dst, element_size});
  if (const std::byte* memory = array.file->data()) {
    copy_rows(ordered, 0, ordered.sizes[0], array.dst, memory + array.offset);
    return;
  }
  read_rows(ordered, 0, ordered.offset, ordered.dst);
}

void StridedReader::read_rows(const StridedArray& array, size_t dim, int64_t offset, std::byte* dst) {
  const bool last = dim + 1 == array.sizes.size();
  const int64_t stride = array.src_strides[dim], rows = array.sizes[dim];
  const int64_t row_span = span_bytes(array, dim + 1);
  if (last && stride == array.element_size && array.dst_strides[dim] == array.element_size) {
    return fetch(*array.file, offset, {dst, static_cast<size_t>(rows * array.element_size)});
  }
  const bool far_apart = stride - row_span > kFarApart;
  if (!last && (is_long_run(array) || far_apart || row_span > window_bytes_)) {
    for (int64_t i = 0; i < rows; ++i)
      read_rows(array, dim + 1, offset + i * stride, dst + i * array.dst_strides[dim]);
    return;
  }
  if (last && far_apart) {
    for (int64_t i = 0; i < rows; ++i) {
      fetch(*array.file, offset + i * stride,
            {dst + i * array.dst_strides[dim], static_cast<size_t>(array.element_size)});
    }
    return;
  }
  if (window_.size() == 0) window_ = AlignedBuffer(window_bytes_);
  const int64_t rows_at_once = stride == 0 ? rows : (window_bytes_ - row_span) / stride + 1;
  for (int64_t i = 0; i < rows; i += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - i);
    const int64_t bytes = (count - 1) * stride + row_span;
    fetch(*array.file, offset + i * stride, {window_.data(), static_cast<size_t>(bytes)});
    copy_rows(array, dim, count, dst + i * array.dst_strides[dim], window_.data());
  }
}

}  // namespace milepost
