#include "engine/payloads.h"

#include <algorithm>
#include <cstring>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kCastScratchBytes = 1 << 20;

const Catalog::Tensor& source_tensor(const PayloadSource& source, const TensorView& view) {
  return source.checkpoint->catalog().tensors()[static_cast<size_t>(view.source)];
}

}  // namespace

Box PayloadSource::box(const PayloadRef& payload) const {
  const TensorView& view = views[static_cast<size_t>(payload.item)];
  if (payload.chunk < 0) return Box::whole(source_tensor(*this, view).shape);
  return boxes->chunk_box(boxes->tensors()[static_cast<size_t>(view.target)], payload.chunk);
}

int64_t PayloadSource::length(const PayloadRef& payload) const {
  const auto item = static_cast<size_t>(payload.item);
  switch (payload.kind) {
    case PayloadRef::Kind::kFileRange:
      return ranges[item].length;
    case PayloadRef::Kind::kOwned:
      return static_cast<int64_t>(owned[item].size());
    case PayloadRef::Kind::kTensor:
      break;
  }
  return dtype_bytes(views[item].dtype, box(payload).num_elements()).value();
}

PayloadFiller::PayloadFiller(const PayloadSource& source) : source_(&source), reader_(source.checkpoint) {}

void PayloadFiller::fill(const PayloadRef& payload, int64_t begin, int64_t end, std::byte* dst) {
  const auto item = static_cast<size_t>(payload.item);
  switch (payload.kind) {
    case PayloadRef::Kind::kTensor:
      return fill_tensor(payload, begin, end, dst);
    case PayloadRef::Kind::kFileRange: {
      const Location& range = source_->ranges[item];
      source_->checkpoint->open_file(range.file)
          ->read_at(range.offset + begin, {dst, static_cast<size_t>(end - begin)});
      return;
    }
    case PayloadRef::Kind::kOwned:
      std::memcpy(dst, source_->owned[item].data() + begin, static_cast<size_t>(end - begin));
      return;
  }
}

std::pair<const std::byte*, int64_t> PayloadFiller::view(const PayloadRef& payload, int64_t begin) {
  const auto item = static_cast<size_t>(payload.item);
  if (payload.kind == PayloadRef::Kind::kOwned) {
    const ByteVector& bytes = source_->owned[item];
    return {bytes.data() + begin, static_cast<int64_t>(bytes.size()) - begin};
  }
  if (payload.kind == PayloadRef::Kind::kFileRange) return {nullptr, 0};
  const TensorView& view = source_->views[item];
  if (source_tensor(*source_, view).dtype != view.dtype) return {nullptr, 0};
  return reader_.view_linear(view.source, source_->box(payload), begin);
}

void PayloadFiller::fill_tensor(const PayloadRef& payload, int64_t begin, int64_t end, std::byte* dst) {
  const TensorView& view = source_->views[static_cast<size_t>(payload.item)];
  const Box box = source_->box(payload);
  const int64_t size = is_sub_byte(view.dtype) ? 1 : dtype_size(view.dtype);
  // A block of the file may begin or end inside an element: such an element is made whole first.
  std::byte element[16];
  if (const int64_t inside = begin % size; inside != 0) {
    fill_elements(view, box, begin / size, begin / size + 1, element);
    const int64_t count = std::min(size - inside, end - begin);
    std::memcpy(dst, element + inside, static_cast<size_t>(count));
    begin += count;
    dst += count;
  }
  const int64_t whole_end = std::max(begin, round_down(end, size));
  fill_elements(view, box, begin / size, whole_end / size, dst);
  if (whole_end < end) {
    fill_elements(view, box, whole_end / size, whole_end / size + 1, element);
    std::memcpy(dst + (whole_end - begin), element, static_cast<size_t>(end - whole_end));
  }
}

void PayloadFiller::fill_elements(const TensorView& view, const Box& box, int64_t first, int64_t last,
                                  std::byte* dst) {
  const DType stored = source_tensor(*source_, view).dtype;
  const int64_t stored_size = is_sub_byte(stored) ? 1 : dtype_size(stored);
  if (stored == view.dtype) {
    reader_.read_linear(view.source, box, first * stored_size, last * stored_size, dst);
    return;
  }
  if (scratch_.size() == 0) scratch_ = AlignedBuffer(kCastScratchBytes);
  const int64_t at_once = kCastScratchBytes / stored_size;
  for (; first < last; first += at_once) {
    const int64_t count = std::min(at_once, last - first);
    reader_.read_linear(view.source, box, first * stored_size, (first + count) * stored_size,
                        scratch_.data());
    cast(dst, view.dtype, scratch_.data(), stored, count);
    dst += count * dtype_size(view.dtype);
  }
}

}  // namespace milepost
