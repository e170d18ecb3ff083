// How a box of a derived tensor is made:
//
// 1. The wanted elements are a range of the box's row-major order. The parts that meet the box's rows cut it
//    into stretches, one a part.
// 2. Stored values come from one box of the source in the same order, straight to their place; rows in
//    another order come one by one.
// 3. Computed values go row by row through scratch memory: codes or values of the source are fetched there,
//    and a kernel of tensor/block_scale.h writes the result. The scales of the block row last used are kept.
// 4. A target with strides is made of such ranges.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "engine/element_reader.h"
#include "engine/random_values.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/engine/reader.h"
#include "milepost/tensor/block_scale.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kScratchBytes = 1 << 20;

int64_t element_bytes(DType dtype) { return is_sub_byte(dtype) ? 1 : dtype_size(dtype); }

// A stretch of one row (of the last dimension) of a box.
struct RowStretch {
  int64_t row;           // row-major index of the row in the whole tensor
  int64_t first, count;  // columns of the whole tensor
  int64_t done;          // elements before it in the range
};

// Calls visit(stretch) for elements [begin, end) of `box` of a tensor of `shape`.
template <typename Visit>
void for_rows(DimsView shape, const Box& box, int64_t begin, int64_t end, Visit&& visit) {
  const size_t rank = shape.size();
  const int64_t width = rank == 0 ? 1 : box.sizes.back();
  const int64_t left = rank == 0 ? 0 : box.offsets.back();
  for (int64_t at = begin; at < end;) {
    int64_t rest = at / width, row = 0, scale = 1;
    for (size_t d = rank - std::min<size_t>(rank, 1); d-- > 0;) {
      row += (box.offsets[d] + rest % box.sizes[d]) * scale;
      rest /= box.sizes[d];
      scale *= shape[d];
    }
    const int64_t column = at % width, count = std::min(width - column, end - at);
    visit(RowStretch{row, left + column, count, at - begin});
    at += count;
  }
}

// The rows of `box` that `part` holds. Requires that it holds some.
Box rows_in_part(const Box& box, const TensorPart& part) {
  Box rows = box;
  rows.offsets[0] = std::max(box.offsets[0], part.first_row);
  rows.sizes[0] = std::min(box.offsets[0] + box.sizes[0], part.first_row + part.num_rows) - rows.offsets[0];
  return rows;
}

// The box of the source that `box` (rows inside the part) corresponds to: see TensorPart::origin.
Box source_box(const TensorPart& part, const Box& box, DimsView source_shape) {
  const size_t source_rank = source_shape.size(), rank = box.sizes.size();
  Box out;
  for (size_t s = 0; s < source_rank; ++s) {
    const int64_t origin = part.origin.empty() ? 0 : part.origin[s];
    if (s + rank < source_rank) {  // selected
      out.offsets.push_back(origin);
      out.sizes.push_back(1);
      continue;
    }
    const size_t d = s + rank - source_rank;
    out.offsets.push_back(origin + box.offsets[d] - (d == 0 ? part.first_row : 0));
    out.sizes.push_back(box.sizes[d]);
  }
  return out;
}

class DerivedReader final : public ElementReader {
 public:
  DerivedReader(const Checkpoint& checkpoint, int64_t window_bytes)
      : map_(*checkpoint.derivation().map), source_(*checkpoint.derivation().source, window_bytes) {}

  void read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) override;
  void read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) override;
  std::pair<const std::byte*, int64_t> view_linear(int64_t tensor, const Box& box, int64_t begin) override;
  int64_t bytes_read() const override { return source_.bytes_read(); }

 private:
  const Catalog::Tensor& target_info(int64_t tensor) const {
    return map_.target.tensors()[static_cast<size_t>(tensor)];
  }
  const Catalog::Tensor& source_info(int64_t tensor) const {
    return source_.checkpoint().catalog().tensors()[static_cast<size_t>(tensor)];
  }
  // The part that holds row `row`.
  size_t find_part(int64_t tensor, int64_t row) const;
  MutableBytes scratch();

  // Each fills `dst` with elements [begin, end) of `box`, whose rows lie inside `part`.
  void read_part(const Catalog::Tensor& info, const TensorPart& part, const Box& box, int64_t begin,
                 int64_t end, std::byte* dst);
  void read_reordered(const Catalog::Tensor& info, const TensorPart& part, const Box& box, int64_t begin,
                      int64_t end, std::byte* dst);
  void read_block_scaled(const Catalog::Tensor& info, const TensorPart& part, const Box& box, int64_t begin,
                         int64_t end, std::byte* dst);
  void read_mxfp4(const Catalog::Tensor& info, const TensorPart& part, const Box& box, int64_t begin,
                  int64_t end, std::byte* dst);
  void read_fp8_codes(const Catalog::Tensor& info, const TensorPart& part, const Box& box, int64_t begin,
                      int64_t end, std::byte* dst);
  void read_fp8_scales(const Catalog::Tensor& info, const TensorPart& part, const Box& box, int64_t begin,
                       int64_t end, std::byte* dst);
  // Elements [begin, end) of a box of the source as `dtype`.
  void fetch(int64_t source, const Box& box, int64_t begin, int64_t end, DType dtype, std::byte* dst);
  // The scales of one block row: stored ones, or computed from the values. Valid until the next call.
  const float* stored_scales(const TensorPart& part, int64_t block_row);
  const float* computed_scales(const TensorPart& part, int64_t block_row);

  const KeyMap& map_;
  TensorReader source_;
  AlignedBuffer scratch_;
  int64_t scales_tensor_ = -1, scales_row_ = -1;  // what `scales_` holds
  std::vector<float> scales_;
};

size_t DerivedReader::find_part(int64_t tensor, int64_t row) const {
  const std::vector<TensorPart>& parts = map_.parts[static_cast<size_t>(tensor)];
  const auto after =
      std::upper_bound(parts.begin(), parts.end(), row,
                       [](int64_t value, const TensorPart& part) { return value < part.first_row; });
  return static_cast<size_t>(after - parts.begin()) - 1;
}

MutableBytes DerivedReader::scratch() {
  if (scratch_.size() == 0) scratch_ = AlignedBuffer(kScratchBytes);
  return scratch_.span();
}

void DerivedReader::read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) {
  if (begin >= end) return;
  const Catalog::Tensor& info = target_info(tensor);
  const std::vector<TensorPart>& parts = map_.parts[static_cast<size_t>(tensor)];
  const int64_t size = element_bytes(info.dtype);
  if (is_sub_byte(info.dtype)) {  // whole tensors under another name only
    return source_.read_linear(parts[0].source, Box::whole(info.shape), begin, end, dst);
  }
  const int64_t first = begin / size, last = end / size;
  if (box.sizes.empty()) return read_part(info, parts[0], box, first, last, dst);
  const int64_t per_row = num_elements(DimsView(box.sizes).subspan(1));
  for (size_t i = find_part(tensor, box.offsets[0] + first / per_row); i < parts.size(); ++i) {
    const TensorPart& part = parts[i];
    const Box rows = rows_in_part(box, part);
    const int64_t start = (rows.offsets[0] - box.offsets[0]) * per_row, count = rows.sizes[0] * per_row;
    if (start >= last) break;
    const int64_t low = std::max(first, start), high = std::min(last, start + count);
    read_part(info, part, rows, low - start, high - start, dst + (low - first) * size);
  }
}

std::pair<const std::byte*, int64_t> DerivedReader::view_linear(int64_t tensor, const Box& box,
                                                                int64_t begin) {
  const Catalog::Tensor& info = target_info(tensor);
  if (is_sub_byte(info.dtype) || box.empty()) return {nullptr, 0};
  const int64_t size = element_bytes(info.dtype);
  Box rows = box;
  int64_t start = 0;
  const TensorPart* part = map_.parts[static_cast<size_t>(tensor)].data();
  if (!box.sizes.empty()) {
    const int64_t per_row = num_elements(DimsView(box.sizes).subspan(1));
    part += find_part(tensor, box.offsets[0] + begin / size / per_row);
    rows = rows_in_part(box, *part);
    start = (rows.offsets[0] - box.offsets[0]) * per_row * size;
  }
  if (part->values != TensorPart::Values::kStored || part->order.group != 0) return {nullptr, 0};
  const Catalog::Tensor& source = source_info(part->source);
  if (source.dtype != info.dtype) return {nullptr, 0};
  auto [memory, available] =
      source_.view_linear(part->source, source_box(*part, rows, source.shape), begin - start);
  return {memory, std::min(available, rows.num_elements() * size - (begin - start))};
}

void DerivedReader::read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) {
  const Catalog::Tensor& info = target_info(tensor);
  require_whole_bytes(info);
  if (box.empty()) return;
  // Trailing dimensions that are dense in `dst` are made in one go, the others are stepped through.
  const int64_t size = dtype_size(info.dtype);
  int64_t dense = size;
  size_t dim = box.sizes.size();
  while (dim > 0 && (dst_strides[dim - 1] == dense || box.sizes[dim - 1] == 1)) dense *= box.sizes[--dim];
  Box piece = box;
  std::function<void(size_t, std::byte*)> step = [&](size_t d, std::byte* place) {
    if (d == dim) return read_linear(tensor, piece, 0, dense, place);
    for (int64_t i = 0; i < box.sizes[d]; ++i) {
      piece.offsets[d] = box.offsets[d] + i;
      piece.sizes[d] = 1;
      step(d + 1, place + i * dst_strides[d]);
    }
  };
  step(0, dst);
}

void DerivedReader::read_part(const Catalog::Tensor& info, const TensorPart& part, const Box& box,
                              int64_t begin, int64_t end, std::byte* dst) {
  switch (part.values) {
    case TensorPart::Values::kStored:
      if (part.order.group != 0) return read_reordered(info, part, box, begin, end, dst);
      return fetch(part.source, source_box(part, box, source_info(part.source).shape), begin, end, info.dtype,
                   dst);
    case TensorPart::Values::kBlockScaled:
      return read_block_scaled(info, part, box, begin, end, dst);
    case TensorPart::Values::kMxfp4:
      return read_mxfp4(info, part, box, begin, end, dst);
    case TensorPart::Values::kFp8Codes:
      return read_fp8_codes(info, part, box, begin, end, dst);
    case TensorPart::Values::kFp8Scales:
      return read_fp8_scales(info, part, box, begin, end, dst);
    case TensorPart::Values::kZeros:
      std::memset(dst, 0, static_cast<size_t>((end - begin) * dtype_size(info.dtype)));
      return;
    case TensorPart::Values::kRandom:
      return for_rows(info.shape, box, begin, end, [&](const RowStretch& stretch) {
        const int64_t width = info.shape.empty() ? 1 : info.shape.back();
        random_values(dst + stretch.done * dtype_size(info.dtype), info.dtype, part.seed,
                      stretch.row * width + stretch.first, stretch.count);
      });
  }
}

void DerivedReader::fetch(int64_t source, const Box& box, int64_t begin, int64_t end, DType dtype,
                          std::byte* dst) {
  const DType stored = source_info(source).dtype;
  const int64_t size = dtype_size(stored);
  if (stored == dtype) return source_.read_linear(source, box, begin * size, end * size, dst);
  const int64_t at_once = kScratchBytes / size;
  for (int64_t at = begin; at < end; at += at_once) {
    const int64_t count = std::min(at_once, end - at);
    std::byte* values = scratch().data();
    source_.read_linear(source, box, at * size, (at + count) * size, values);
    cast(dst + (at - begin) * dtype_size(dtype), dtype, values, stored, count);
  }
}

void DerivedReader::read_reordered(const Catalog::Tensor& info, const TensorPart& part, const Box& box,
                                   int64_t begin, int64_t end, std::byte* dst) {
  const DimsView source_shape = source_info(part.source).shape;
  for_rows(info.shape, box, begin, end, [&](const RowStretch& stretch) {
    Box row{{stretch.row, stretch.first}, {1, stretch.count}};
    row = source_box(part, row, source_shape);
    const int64_t origin = part.origin.empty() ? 0 : part.origin[0];
    row.offsets[0] = origin + part.order.source_row(stretch.row - part.first_row);
    fetch(part.source, row, 0, stretch.count, info.dtype, dst + stretch.done * dtype_size(info.dtype));
  });
}

void DerivedReader::read_block_scaled(const Catalog::Tensor& info, const TensorPart& part, const Box& box,
                                      int64_t begin, int64_t end, std::byte* dst) {
  const DType code = source_info(part.source).dtype;
  const Box codes_box = source_box(part, box, source_info(part.source).shape);
  for (int64_t at = begin; at < end; at += kScratchBytes) {
    const int64_t count = std::min(kScratchBytes, end - at);
    std::byte* codes = scratch().data();
    source_.read_linear(part.source, codes_box, at, at + count, codes);
    for_rows(info.shape, box, at, at + count, [&](const RowStretch& stretch) {
      const float* scales = stored_scales(part, (stretch.row - part.first_row) / part.block);
      dequantise_row(dst + (at - begin + stretch.done) * dtype_size(info.dtype), info.dtype,
                     codes + stretch.done, code, scales, part.block, stretch.first, stretch.count);
    });
  }
}

void DerivedReader::read_mxfp4(const Catalog::Tensor& info, const TensorPart& part, const Box& box,
                               int64_t begin, int64_t end, std::byte* dst) {
  const Catalog::Tensor &blocks = source_info(part.source), &scales = source_info(part.scales);
  const int64_t groups = blocks.shape[blocks.shape.size() - 2], bytes = blocks.shape.back();
  const Box all_blocks = Box::whole(blocks.shape), all_scales = Box::whole(scales.shape);
  std::vector<std::uint8_t> codes, exponents;
  for_rows(info.shape, box, begin, end, [&](const RowStretch& stretch) {
    // Whole groups around the stretch.
    const int64_t first_group = stretch.first / (2 * bytes);
    const int64_t last_group = ceil_div(stretch.first + stretch.count, 2 * bytes);
    const int64_t base = stretch.row * groups + first_group, count = last_group - first_group;
    codes.resize(static_cast<size_t>(count * bytes));
    exponents.resize(static_cast<size_t>(count));
    source_.read_linear(part.source, all_blocks, base * bytes, (base + count) * bytes,
                        reinterpret_cast<std::byte*>(codes.data()));
    source_.read_linear(part.scales, all_scales, base, base + count,
                        reinterpret_cast<std::byte*>(exponents.data()));
    dequantise_mxfp4_row(dst + stretch.done * dtype_size(info.dtype), info.dtype, codes.data(),
                         exponents.data(), 2 * bytes, stretch.first - first_group * 2 * bytes, stretch.count);
  });
}

void DerivedReader::read_fp8_codes(const Catalog::Tensor& info, const TensorPart& part, const Box& box,
                                   int64_t begin, int64_t end, std::byte* dst) {
  const DType stored = source_info(part.source).dtype;
  const int64_t size = dtype_size(stored), at_once = kScratchBytes / size;
  for_rows(info.shape, box, begin, end, [&](const RowStretch& stretch) {
    const float* scales = computed_scales(part, stretch.row / part.block);
    for (int64_t at = 0; at < stretch.count; at += at_once) {
      const int64_t count = std::min(at_once, stretch.count - at);
      const Box row{{stretch.row, stretch.first + at}, {1, count}};
      source_.read_linear(part.source, row, 0, count * size, scratch().data());
      quantise_row(dst + stretch.done + at, scratch().data(), stored, scales, part.block, stretch.first + at,
                   count);
    }
  });
}

void DerivedReader::read_fp8_scales(const Catalog::Tensor& info, const TensorPart& part, const Box& box,
                                    int64_t begin, int64_t end, std::byte* dst) {
  for_rows(info.shape, box, begin, end, [&](const RowStretch& stretch) {
    const float* scales = computed_scales(part, stretch.row);
    std::memcpy(dst + stretch.done * dtype_size(info.dtype), scales + stretch.first,
                static_cast<size_t>(stretch.count) * sizeof(float));
  });
}

const float* DerivedReader::stored_scales(const TensorPart& part, int64_t block_row) {
  if (scales_tensor_ == part.scales && scales_row_ == block_row) return scales_.data();
  scales_tensor_ = -1;
  const Catalog::Tensor& info = source_info(part.scales);
  const int64_t columns = info.shape[1], size = dtype_size(info.dtype);
  scales_.resize(static_cast<size_t>(columns));
  const Box row{{block_row, 0}, {1, columns}};
  std::vector<std::byte> raw(static_cast<size_t>(columns * size));
  source_.read_linear(part.scales, row, 0, columns * size, raw.data());
  cast(reinterpret_cast<std::byte*>(scales_.data()), DType::kFloat32, raw.data(), info.dtype, columns);
  scales_tensor_ = part.scales;
  scales_row_ = block_row;
  return scales_.data();
}

const float* DerivedReader::computed_scales(const TensorPart& part, int64_t block_row) {
  // Computed scales are told from stored ones by a key that no tensor has.
  const int64_t key = -2 - part.source;
  if (scales_tensor_ == key && scales_row_ == block_row) return scales_.data();
  scales_tensor_ = -1;
  const Catalog::Tensor& info = source_info(part.source);
  const int64_t rows = info.shape[0], columns = info.shape[1], size = dtype_size(info.dtype);
  scales_.assign(static_cast<size_t>(ceil_div(columns, part.block)), 0.0F);
  const int64_t first = block_row * part.block;
  const Box band{{first, 0}, {std::min(part.block, rows - first), columns}};
  const int64_t total = band.num_elements(), at_once = kScratchBytes / size;
  for (int64_t at = 0; at < total; at += at_once) {
    const int64_t count = std::min(at_once, total - at);
    std::byte* values = scratch().data();
    source_.read_linear(part.source, band, at * size, (at + count) * size, values);
    for_rows(info.shape, band, at, at + count, [&](const RowStretch& stretch) {
      accumulate_amax(scales_.data(), values + stretch.done * size, info.dtype, part.block, stretch.first,
                      stretch.count);
    });
  }
  for (float& scale : scales_) scale = fp8_scale(scale);
  scales_tensor_ = key;
  scales_row_ = block_row;
  return scales_.data();
}

}  // namespace

std::unique_ptr<ElementReader> make_derived_reader(const Checkpoint& checkpoint, int64_t window_bytes) {
  return std::make_unique<DerivedReader>(checkpoint, window_bytes);
}

}  // namespace milepost
