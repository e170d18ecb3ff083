#include "milepost/catalog/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

[[noreturn]] void throw_duplicate(std::string_view name) {
  FormatError error(ErrorCode::kDuplicate, "the name occurs twice");
  error.set_key(name);
  throw error;
}

}  // namespace

uint32_t Catalog::add_file(std::string path, int64_t size_bytes) {
  const auto [it, added] = file_names_.try_emplace(std::move(path), static_cast<uint32_t>(files_.size()));
  if (added) files_.push_back({it->first, size_bytes});
  return it->second;
}

int64_t Catalog::add_tensor(std::string name, DType dtype, DimsView shape) {
  const auto index = static_cast<int64_t>(tensors_.size());
  if (!names_.try_emplace(name, index).second) throw_duplicate(name);
  tensors_.push_back({std::move(name), dtype, Dims(shape.begin(), shape.end()), num_chunks(), 0,
                      static_cast<int64_t>(boxes_.size())});
  return index;
}

int64_t Catalog::add_chunk(DimsView offsets, DimsView sizes, const Location& location) {
  Tensor& tensor = tensors_.back();
  assert(offsets.size() == tensor.shape.size() && sizes.size() == tensor.shape.size());
  for (int64_t offset : offsets) boxes_.push_back(offset);
  for (int64_t size : sizes) boxes_.push_back(size);
  locations_.push_back(location);
  ++tensor.num_chunks;
  return num_chunks() - 1;
}

int64_t Catalog::add_object(std::string name, const Location& location) {
  const auto index = static_cast<int64_t>(objects_.size());
  if (!names_.try_emplace(name, -1 - index).second) throw_duplicate(name);
  objects_.push_back({std::move(name), location});
  return index;
}

uint32_t Catalog::add_layout(const StorageLayout& layout) {
  for (size_t i = 0; i < layouts_.size() && i < 64; ++i) {
    if (layouts_[i] == layout) return Location::kFirstLayout + static_cast<uint32_t>(i);
  }
  layouts_.push_back(layout);
  return Location::kFirstLayout + static_cast<uint32_t>(layouts_.size() - 1);
}

void Catalog::set_path(std::string_view name, KeyPath path) {
  has_paths_ = true;
  if (path.size() == 1 && std::holds_alternative<std::string>(path[0]) &&
      std::get<std::string>(path[0]) == name) {
    return;
  }
  paths_.insert_or_assign(std::string(name), std::move(path));
}

void Catalog::set_order(std::vector<std::string> names) { order_ = std::move(names); }

std::optional<int64_t> Catalog::find_tensor(std::string_view name) const {
  const auto it = names_.find(name);
  if (it == names_.end() || it->second < 0) return std::nullopt;
  return it->second;
}

std::optional<int64_t> Catalog::find_object(std::string_view name) const {
  const auto it = names_.find(name);
  if (it == names_.end() || it->second >= 0) return std::nullopt;
  return -1 - it->second;
}

Box Catalog::chunk_box(const Tensor& tensor, int64_t chunk) const {
  const size_t ndim = tensor.shape.size();
  size_t at =
      static_cast<size_t>(tensor.first_box) + static_cast<size_t>(chunk - tensor.first_chunk) * 2 * ndim;
  Box box;
  for (size_t d = 0; d < ndim; ++d) box.offsets.push_back(boxes_[at++]);
  for (size_t d = 0; d < ndim; ++d) box.sizes.push_back(boxes_[at++]);
  return box;
}

int64_t Catalog::tensor_of_chunk(int64_t chunk) const {
  // Of tensors that start at the same chunk all but the last have none.
  const auto after =
      std::upper_bound(tensors_.begin(), tensors_.end(), chunk,
                       [](int64_t value, const Tensor& tensor) { return value < tensor.first_chunk; });
  return after - tensors_.begin() - 1;
}

KeyPath Catalog::path(std::string_view name) const {
  const auto it = paths_.find(name);
  if (it != paths_.end()) return it->second;
  return {PathElement(std::string(name))};
}

std::vector<std::string_view> Catalog::names_in_order() const {
  std::vector<std::string_view> names;
  if (!order_.empty()) {
    names.assign(order_.begin(), order_.end());
    return names;
  }
  names.reserve(tensors_.size() + objects_.size());
  for (const Tensor& tensor : tensors_) names.push_back(tensor.name);
  for (const Object& object : objects_) names.push_back(object.name);
  return names;
}

int64_t tensor_bytes(const Catalog::Tensor& tensor) {
  int64_t elements;
  std::optional<int64_t> bytes;
  if (checked_product(tensor.shape, &elements)) bytes = dtype_bytes(tensor.dtype, elements);
  if (!bytes) {
    FormatError error(ErrorCode::kTooLarge, fmt::format("shape {} of {} is not a size in bytes",
                                                        dims_text(tensor.shape), dtype_name(tensor.dtype)));
    error.set_key(tensor.name);
    throw error;
  }
  return *bytes;
}

}  // namespace milepost
