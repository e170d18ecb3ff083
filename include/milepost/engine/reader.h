// TensorReader: fetches any box of any tensor of a checkpoint into memory, whatever chunks, strides and
// archives it lies in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "milepost/base/aligned_buffer.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/tensor/box.h"

namespace milepost {

class ElementReader;

// Where the elements of one stored chunk lie, archives resolved.
struct StoredChunk {
  std::shared_ptr<const ByteSource> file;
  int64_t payload_offset = 0;  // bytes in the file
  int64_t payload_bytes = 0;
  bool row_major = true;  // the payload is exactly the chunk, row-major, little-endian
  StorageLayout layout;   // when not
  uint32_t crc32 = 0;     // as the archive states it; 0: unknown
};

// Finds a chunk's payload. Throws FormatError (path, key) when the stored tensor's dtype or shape is not what
// the index says, when the range leaves the file, or when no location is known.
StoredChunk resolve_chunk(const Checkpoint& checkpoint, int64_t tensor, int64_t chunk);

// Threads: one reader a thread; readers share the Checkpoint. Memory: `window_bytes` of buffer (default 2
// MiB), allocated on first need, and up to 256 resolved chunks. A reader keeps one file open besides those
// that the Checkpoint does.
//
// `tensor` is an index into the catalog's tensors, `box` lies inside it: anything else is a bug of the
// caller.
class TensorReader {
 public:
  explicit TensorReader(std::shared_ptr<const Checkpoint> checkpoint, int64_t window_bytes = 2 << 20);
  ~TensorReader();
  TensorReader(TensorReader&&) noexcept;

  const Checkpoint& checkpoint() const { return *checkpoint_; }

  // Fills `dst`, an array of box.sizes elements of the stored dtype with `dst_strides` in BYTES, with `box`
  // of the tensor. Long runs are read straight into `dst`, short ones (< 16 KiB) through the window by
  // reading the covering range. Throws FormatError kHole (key, box) when chunks do not cover the box, and
  // what resolve_chunk and ByteSource throw; `dst` is then unspecified.
  void read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides);

  // Fills `dst` with bytes [begin, end) of the row-major array of `box`; both must be multiples of the
  // element size (6-bit types: any bytes of the whole tensor).
  void read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst);

  // The same when the bytes already lie contiguous in memory: a pointer to byte `begin`, valid as long as the
  // checkpoint, and how many bytes follow (at least 1), else {nullptr, 0}.
  std::pair<const std::byte*, int64_t> view_linear(int64_t tensor, const Box& box, int64_t begin);

  // Bytes fetched from files so far, for tests of read amplification.
  int64_t bytes_read() const;

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unique_ptr<ElementReader> reader_;
};

}  // namespace milepost
