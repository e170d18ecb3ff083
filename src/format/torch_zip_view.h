// How a tensor of a torch.save archive looks at its storage.
#pragma once

#include <cstdint>
#include <string_view>

#include "format/torch_zip_tensor_pickle.h"
#include "milepost/base/bytes.h"
#include "milepost/catalog/catalog.h"
#include "milepost/format/pickle.h"
#include "milepost/tensor/dtype.h"

namespace milepost::torch_zip {

struct View {
  TensorPickle tensor;
  bool conj = false, neg = false;

  View() = default;
  explicit View(const pickle::TensorRef& ref);

  // Bytes of the elements. Throws FormatError kTooLarge (`source` named) on overflow or too many dimensions.
  int64_t checked_bytes(const ByteSource& source) const;
  // Layout in a storage of the given byte order; elements of one byte have none.
  StorageLayout layout(bool big_endian) const;
  // Whether the elements lie in order and without gaps from storage_offset on, to be taken as they are.
  bool is_plain(bool big_endian) const;
};

}  // namespace milepost::torch_zip
