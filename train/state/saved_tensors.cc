#include "train/state/saved_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/base/error.h"

namespace milepost::train {

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    case at::kDouble:
      return DType::kFloat64;
    case at::kLong:
      return DType::kInt64;
    case at::kInt:
      return DType::kInt32;
    case at::kByte:
      return DType::kUInt8;
    case at::kBool:
      return DType::kBool;
    default:
      throw ValueError(
          fmt::format("checkpoints of {} tensors are not supported", c10::toString(tensor.scalar_type())));
  }
}

namespace {

// How many of the part's rows lie before `row` of the whole.
int64_t part_rows_before(const SavedPart& part, int64_t row) {
  return row / part.period_rows * part.num_rows +
         std::clamp<int64_t>(row % part.period_rows - part.first_row, 0, part.num_rows);
}

}  // namespace

Dims SavedTensor::shape() const {
  Dims shape = whole;
  if (part != nullptr) shape[0] = part_rows_before(*part, whole[0]);
  return shape;
}

Box SavedTensor::box() const {
  Box box = held;
  if (part == nullptr) return box;
  box.offsets[0] = part_rows_before(*part, held.offsets[0]);
  box.sizes[0] = part_rows_before(*part, held.offsets[0] + held.sizes[0]) - box.offsets[0];
  // Where torch puts a shard without rows; elsewhere it would stand at the place of another rank's.
  if (box.sizes[0] == 0) box.offsets[0] = part_rows_before(*part, whole[0]);
  return box;
}

std::vector<SavedTensor::Piece> SavedTensor::pieces() const {
  if (memory.numel() == 0) return {};
  auto* const data = static_cast<std::byte*>(memory.data_ptr());
  if (part == nullptr) return {{held, {data, static_cast<size_t>(memory.nbytes())}}};
  std::vector<Piece> pieces;
  const int64_t first = held.offsets[0], last = first + held.sizes[0];
  const auto row_bytes = static_cast<int64_t>(memory.nbytes()) / held.sizes[0];
  for (int64_t period = first / part->period_rows; period * part->period_rows < last; ++period) {
    const int64_t start = period * part->period_rows + part->first_row;
    const int64_t begin = std::max(start, first), end = std::min(start + part->num_rows, last);
    if (begin >= end) continue;
    Piece piece{held, {data + (begin - first) * row_bytes, static_cast<size_t>((end - begin) * row_bytes)}};
    piece.box.offsets[0] = period * part->num_rows + begin - start;
    piece.box.sizes[0] = end - begin;
    pieces.push_back(piece);
  }
  return pieces;
}

SavedTensor saved_whole(const std::string& name, const at::Tensor& memory) {
  const Dims shape(memory.sizes().begin(), memory.sizes().end());
  return {name, memory, nullptr, shape, Box::whole(shape)};
}

SavedTensor saved_like(const std::string& name, const Parameter& parameter, const at::Tensor& memory) {
  return {name, memory, nullptr, Dims(parameter.shape.begin(), parameter.shape.end()), local_box(parameter)};
}

std::vector<SavedTensor> saved_tensors(const Parameter& parameter) {
  std::vector<SavedTensor> out;
  if (!parameter.saved) return out;
  const at::Tensor memory = parameter.local.detach();
  if (parameter.parts.empty()) out.push_back(saved_like(parameter.name, parameter, memory));
  for (const SavedPart& part : parameter.parts) {
    out.push_back(saved_like(part.name, parameter, memory));
    out.back().part = &part;
  }
  return out;
}

}  // namespace milepost::train
