// Reading an n-d array with strides out of a byte range of a file, in few and large reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "milepost/base/aligned_buffer.h"
#include "milepost/base/bytes.h"
#include "milepost/tensor/box.h"

namespace milepost {

// Element i of the array lies at byte `offset + sum(i_d * src_strides_d)` of `file` and goes to `dst +
// sum(i_d * dst_strides_d)`. Strides in bytes, source strides >= 0.
struct StridedArray {
  const ByteSource* file;
  int64_t offset;
  Dims sizes, src_strides;
  std::byte* dst;
  Dims dst_strides;
  int64_t element_size;
};

// Threads: one caller at a time. Memory: one window, allocated on first need.
class StridedReader {
 public:
  explicit StridedReader(int64_t window_bytes) : window_bytes_(window_bytes) {}
  // Requires: all elements lie inside the file. Throws what ByteSource::read_at throws.
  void read(const StridedArray& array);
  int64_t bytes_read() const { return bytes_read_; }
  void count(int64_t bytes) { bytes_read_ += bytes; }  // bytes that the owner fetched itself

 private:
  void read_rows(const StridedArray& array, size_t dim, int64_t offset, std::byte* dst);
  void fetch(const ByteSource& file, int64_t offset, MutableBytes dst);

  int64_t window_bytes_;
  AlignedBuffer window_;
  int64_t bytes_read_ = 0;
};

}  // namespace milepost
