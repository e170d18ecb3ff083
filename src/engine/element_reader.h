// What a TensorReader is inside: one way to fetch elements for stored tensors, one for derived ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "milepost/engine/checkpoint.h"

namespace milepost {

// The members are those of TensorReader (engine/reader.h). Threads: one caller at a time.
class ElementReader {
 public:
  virtual ~ElementReader() = default;
  virtual void read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) = 0;
  virtual void read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) = 0;
  virtual std::pair<const std::byte*, int64_t> view_linear(int64_t tensor, const Box& box, int64_t begin) = 0;
  virtual int64_t bytes_read() const = 0;
};

// Throws FormatError (kUnsupported, key) for elements of less than a byte, of which no box can be taken.
void require_whole_bytes(const Catalog::Tensor& tensor);

// Requires: the checkpoint is not derived, and derived, respectively; both outlive the reader.
std::unique_ptr<ElementReader> make_stored_reader(const Checkpoint& checkpoint, int64_t window_bytes);
std::unique_ptr<ElementReader> make_derived_reader(const Checkpoint& checkpoint, int64_t window_bytes);

}  // namespace milepost
