#include "train/state/saved_tensors.h"

#include <fmt/format.h>

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

Dims SavedTensor::shape() const {
  Dims shape(memory.sizes().begin(), memory.sizes().end());
  if (part != nullptr) shape[0] = shape[0] / part->period_rows * part->num_rows;
  return shape;
}

std::vector<SavedTensor::Piece> SavedTensor::pieces() const {
  auto* const data = static_cast<std::byte*>(memory.data_ptr());
  if (part == nullptr) return {{Box::whole(shape()), {data, static_cast<size_t>(memory.nbytes())}}};
  std::vector<Piece> pieces;
  const int64_t num_rows = memory.size(0);
  const auto row_bytes = static_cast<int64_t>(memory.nbytes()) / num_rows;
  Box box = Box::whole(shape());
  box.sizes[0] = part->num_rows;
  for (int64_t row = part->first_row; row < num_rows; row += part->period_rows) {
    pieces.push_back({box, {data + row * row_bytes, static_cast<size_t>(part->num_rows * row_bytes)}});
    box.offsets[0] += part->num_rows;
  }
  return pieces;
}

std::vector<SavedTensor> saved_tensors(const Parameter& parameter) {
  std::vector<SavedTensor> out;
  if (!parameter.saved) return out;
  const at::Tensor memory = parameter.local.detach();
  if (parameter.parts.empty()) out.push_back({parameter.name, memory, nullptr});
  for (const SavedPart& part : parameter.parts) out.push_back({part.name, memory, &part});
  return out;
}

}  // namespace milepost::train
