#include "format/torch_zip_view.h"

#include <fmt/format.h>

#include "format/zip_error.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::torch_zip {

View::View(const pickle::TensorRef& ref)
    : tensor{ref.dtype,
             ref.storage_key,
             ref.storage_bytes,
             ref.storage_offset,
             Dims(ref.sizes.begin(), ref.sizes.end()),
             Dims(ref.strides.begin(), ref.strides.end())},
      conj(ref.conj),
      neg(ref.neg) {}

int64_t View::checked_bytes(const ByteSource& source) const {
  int64_t elements = 0, bytes = 0;
  if (tensor.sizes.size() > kMaxDims || !checked_product(tensor.sizes, &elements) ||
      !checked_mul(elements, dtype_size(tensor.dtype), &bytes)) {
    zip::fail(source, ErrorCode::kTooLarge, -1,
              fmt::format("a tensor of shape {} is larger than any memory",
                          dims_text(DimsView(tensor.sizes).first(std::min(tensor.sizes.size(), kMaxDims)))));
  }
  return bytes;
}

StorageLayout View::layout(bool big_endian) const {
  return {tensor.storage_offset, tensor.strides, conj, neg, big_endian && dtype_size(tensor.dtype) > 1};
}

bool View::is_plain(bool big_endian) const {
  if (conj || neg || (big_endian && dtype_size(tensor.dtype) > 1)) return false;
  for (int64_t size : tensor.sizes) {
    if (size == 0) return true;
  }
  return is_row_major(tensor.sizes, tensor.strides);
}

}  // namespace milepost::torch_zip
