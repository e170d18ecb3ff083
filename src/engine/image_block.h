// ImageBlock: a stretch of an output file on its way from payloads to storage, in a buffer that is used
// again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/payloads.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/format/file_image.h"
#include "milepost/storage/storage.h"

namespace milepost {

struct OutputFile;

//   block.begin(...); block.gather(...); [CRCs are handed in]; block.render_literals(...); parts() or
//   padded_to()
//
// Threads: one at a time. Memory: a buffer of the block's size, and a rendered literal.
class ImageBlock {
 public:
  // One stretch that comes from a payload.
  struct Piece {
    int64_t payload, begin, length;
    size_t first_part, num_parts;  // of parts()
    uint32_t crc;
  };

  // The block is to be bytes [offset, end) of the file, at most `capacity` of them.
  void begin(int64_t offset, int64_t end, int64_t capacity);
  void clear();

  // Fills payload stretches into the buffer at their place, or points at them in memory where the file takes
  // any address (not `direct`). `takes_crc`: of each piece, while it is in the cache.
  void gather(const OutputFile& file, PayloadFiller& filler, bool direct, bool takes_crc);
  // Requires: `crcs` of all payloads before a literal of the block are complete.
  void render_literals(const FileImage& image, std::span<const uint32_t> crcs);
  // Instead of these: reads the block from a file. False when it cannot be read or its CRC is not `crc`.
  bool read_back(const FileImage& image, const ByteSource& file, uint32_t crc);

  int64_t offset() const { return begin_; }
  int64_t size() const { return end_ - begin_; }
  std::span<const Bytes> parts() const { return parts_; }  // the block, in order
  const std::vector<Piece>& pieces() const { return pieces_; }
  uint32_t crc() const;  // of the block; requires that the pieces have theirs
  // Of a direct block: all of it and zeros up to a multiple of `alignment`.
  Bytes padded_to(int64_t alignment) const;

 private:
  void gather_piece(const PayloadRef& payload, PayloadFiller& filler, int64_t at, bool direct, bool takes_crc,
                    Piece* piece);

  int64_t begin_ = 0, end_ = 0;
  AlignedBuffer buffer_;
  std::vector<Bytes> parts_;
  std::vector<Piece> pieces_;
  ByteVector literal_;
};

}  // namespace milepost
