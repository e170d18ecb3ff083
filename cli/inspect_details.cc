#include "inspect_details.h"

#include <algorithm>

#include "milepost/engine/reader.h"
#include "progress_meter.h"

namespace milepost::cli {
namespace {

constexpr int64_t kCornerWidth = 6;

// Reads values of all objects; one that is refused does not hide the others.
void read_values(const Checkpoint& checkpoint, const std::vector<Entry>& entries, const WantedDetails& wanted,
                 Details* details) {
  details->values.resize(entries.size());
  details->errors.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].is_object) continue;
    try {
      details->values[i] = object_json(checkpoint, entries[i].index, false, wanted.sha256);
    } catch (const Error& error) {
      details->errors[i] = json_error(error);
      details->complete = false;
    }
  }
}

}  // namespace

Details read_details(const Terminal& terminal, const std::shared_ptr<const Checkpoint>& checkpoint,
                     const std::vector<Entry>& entries, const WantedDetails& wanted) {
  Details details;
  if (wanted.values) read_values(*checkpoint, entries, wanted, &details);
  if (!wanted.stats && !wanted.sha256) return details;
  std::vector<int64_t> tensors;
  std::vector<size_t> places;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].is_object) continue;
    tensors.push_back(entries[i].index);
    places.push_back(i);
  }
  ProgressMeter meter(terminal, "reading");
  ScanOptions options;
  options.progress = meter.progress();
  if (wanted.stats) {
    details.stats.resize(entries.size());
    const std::vector<TensorStats> stats = tensor_stats(checkpoint, tensors, options);
    for (size_t i = 0; i < places.size(); ++i) details.stats[places[i]] = stats[i];
  }
  if (wanted.sha256) {
    details.sha256.resize(entries.size());
    const std::vector<Sha256Digest> digests = hash_tensors(checkpoint, tensors, options);
    for (size_t i = 0; i < places.size(); ++i) details.sha256[places[i]] = to_hex(digests[i]);
  }
  return details;
}

std::string object_json(const Checkpoint& checkpoint, int64_t object, bool nested_pickles,
                        bool hash_tensors) {
  const ObjectValue value = checkpoint.read_object(object);
  pickle::JsonOptions options;
  options.nested_pickles = nested_pickles;
  if (hash_tensors) {
    options.tensor_sha256 = [&](const pickle::TensorRef& tensor) {
      return hash_object_tensor(value, tensor);
    };
  }
  try {
    return pickle::to_json(*value.value, options);
  } catch (Error& error) {
    error.set_path(checkpoint.path())
        .set_key(checkpoint.catalog().objects()[static_cast<size_t>(object)].name);
    throw;
  }
}

Corner read_corner(const std::shared_ptr<const Checkpoint>& checkpoint, int64_t tensor) {
  const Catalog::Tensor& info = checkpoint->catalog().tensors()[static_cast<size_t>(tensor)];
  const size_t ndim = info.shape.size();
  Box box = Box::whole(info.shape);
  Corner corner;
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t width = d + 2 >= ndim ? kCornerWidth : 1;
    if (d + 1 == ndim) corner.cut_right = box.sizes[d] > width;
    if (d + 2 == ndim) corner.cut_below = box.sizes[d] > width;
    box.sizes[d] = std::min(box.sizes[d], width);
  }
  if (box.empty()) return corner;
  TensorReader reader(checkpoint);
  const int64_t columns = ndim == 0 ? 1 : box.sizes[ndim - 1], rows = ndim < 2 ? 1 : box.sizes[ndim - 2];
  const int64_t size = is_sub_byte(info.dtype) ? 1 : dtype_size(info.dtype);
  ByteVector values(static_cast<size_t>(rows * columns * size));
  Dims strides = row_major_strides(box.sizes);
  for (int64_t& stride : strides) stride *= size;
  reader.read(tensor, box, values.data(), strides);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<std::string>& texts = corner.rows.emplace_back();
    for (int64_t column = 0; column < columns; ++column) {
      texts.push_back(element_text(values.data() + (row * columns + column) * size, info.dtype));
    }
  }
  return corner;
}

}  // namespace milepost::cli
