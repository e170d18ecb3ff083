#include <fmt/format.h>

#include "engine/element_reader.h"
#include "milepost/base/error.h"
#include "milepost/engine/reader.h"

namespace milepost {

void require_whole_bytes(const Catalog::Tensor& tensor) {
  if (!is_sub_byte(tensor.dtype)) return;
  FormatError error(ErrorCode::kUnsupported,
                    fmt::format("{} tensors can only be read whole", dtype_name(tensor.dtype)));
  error.set_key(tensor.name);
  throw error;
}

TensorReader::TensorReader(std::shared_ptr<const Checkpoint> checkpoint, int64_t window_bytes)
    : checkpoint_(std::move(checkpoint)),
      reader_(checkpoint_->derivation().map == nullptr ? make_stored_reader(*checkpoint_, window_bytes)
                                                       : make_derived_reader(*checkpoint_, window_bytes)) {}
TensorReader::~TensorReader() = default;
TensorReader::TensorReader(TensorReader&&) noexcept = default;

int64_t TensorReader::bytes_read() const { return reader_->bytes_read(); }

void TensorReader::read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) {
  reader_->read(tensor, box, dst, dst_strides);
}

void TensorReader::read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) {
  reader_->read_linear(tensor, box, begin, end, dst);
}

std::pair<const std::byte*, int64_t> TensorReader::view_linear(int64_t tensor, const Box& box,
                                                               int64_t begin) {
  return reader_->view_linear(tensor, box, begin);
}

}  // namespace milepost
