#include "engine/image_block.h"

#include <algorithm>
#include <cstring>

#include "engine/write_images.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

constexpr int64_t kCopyBytes = 256 << 10;   // copied and checksummed at a time
constexpr int64_t kCombineFrom = 32 << 10;  // combining two CRCs takes as long as making one of 20 KiB

// The part of the image that holds byte `offset`.
int64_t find_part(const FileImage& image, int64_t offset) {
  int64_t low = 0, high = image.num_parts();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (image.part(middle).offset <= offset ? low : high) = middle;
  }
  return low;
}

// Calls visit(part index, part, first byte, last byte) for the parts of the image inside [begin, end).
template <typename Visit>
void for_parts(const FileImage& image, int64_t begin, int64_t end, Visit&& visit) {
  if (begin >= end) return;
  for (int64_t i = find_part(image, begin); i < image.num_parts(); ++i) {
    const FileImage::Part part = image.part(i);
    if (part.offset >= end) break;
    const int64_t low = std::max(begin, part.offset), high = std::min(end, part.offset + part.length);
    if (low < high) visit(i, part, low, high);
  }
}

}  // namespace

void ImageBlock::begin(int64_t offset, int64_t end, int64_t capacity) {
  clear();
  if (buffer_.size() < capacity) buffer_ = AlignedBuffer(capacity);
  begin_ = offset;
  end_ = end;
}

void ImageBlock::clear() {
  begin_ = end_ = 0;
  parts_.clear();
  pieces_.clear();
}

void ImageBlock::gather(const OutputFile& file, PayloadFiller& filler, bool direct, bool takes_crc) {
  parts_.clear();
  pieces_.clear();
  for_parts(*file.image, begin_, end_, [&](int64_t, const FileImage::Part& part, int64_t low, int64_t high) {
    if (part.payload < 0) {
      parts_.emplace_back(buffer_.data() + (low - begin_), static_cast<size_t>(high - low));
      return;
    }
    Piece piece{part.payload, low - part.offset, high - low, parts_.size(), 0, 0};
    gather_piece(file.payloads[static_cast<size_t>(part.payload)], filler, low, direct, takes_crc, &piece);
    piece.num_parts = parts_.size() - piece.first_part;
    pieces_.push_back(piece);
  });
}

// `at`: where in the file the piece begins.
void ImageBlock::gather_piece(const PayloadRef& payload, PayloadFiller& filler, int64_t at, bool direct,
                              bool takes_crc, Piece* piece) {
  for (int64_t done = 0; done < piece->length;) {
    const int64_t from = piece->begin + done;
    auto [memory, available] = filler.view(payload, from);
    int64_t count = piece->length - done;
    std::byte* place = buffer_.data() + (at + done - begin_);
    if (memory == nullptr) {
      filler.fill(payload, from, from + count, place);
      memory = place;
    } else {
      count = std::min(available, count);
      if (direct) {
        count = std::min(count, kCopyBytes);
        std::memcpy(place, memory, static_cast<size_t>(count));
        memory = place;
      }
    }
    const Bytes bytes(memory, static_cast<size_t>(count));
    if (takes_crc) piece->crc = crc32(piece->crc, bytes);
    parts_.push_back(bytes);
    done += count;
  }
}

void ImageBlock::render_literals(const FileImage& image, std::span<const uint32_t> crcs) {
  for_parts(image, begin_, end_, [&](int64_t i, const FileImage::Part& part, int64_t low, int64_t high) {
    if (part.payload >= 0) return;
    literal_.clear();
    image.render(i, crcs, literal_);
    std::memcpy(buffer_.data() + (low - begin_), literal_.data() + (low - part.offset),
                static_cast<size_t>(high - low));
  });
}

bool ImageBlock::read_back(const FileImage& image, const ByteSource& file, uint32_t crc) {
  const MutableBytes bytes = buffer_.span().first(static_cast<size_t>(size()));
  try {
    file.read_at(begin_, bytes);
  } catch (const Error&) {
    return false;
  }
  if (crc32(0, bytes) != crc) return false;
  parts_.assign(1, bytes);
  pieces_.clear();
  if (!image.wants_crc()) return true;
  for_parts(image, begin_, end_, [&](int64_t, const FileImage::Part& part, int64_t low, int64_t high) {
    if (part.payload < 0) return;
    const Bytes piece = bytes.subspan(static_cast<size_t>(low - begin_), static_cast<size_t>(high - low));
    pieces_.push_back({part.payload, low - part.offset, high - low, 0, 0, crc32(0, piece)});
  });
  return true;
}

uint32_t ImageBlock::crc() const {
  uint32_t crc = 0;
  size_t next = 0;
  const auto go_on_to = [&](size_t end) {
    for (; next < end; ++next) crc = crc32(crc, parts_[next]);
  };
  for (const Piece& piece : pieces_) {
    if (piece.length < kCombineFrom) continue;
    go_on_to(piece.first_part);
    crc = crc32_combine(crc, piece.crc, piece.length);
    next += piece.num_parts;
  }
  go_on_to(parts_.size());
  return crc;
}

Bytes ImageBlock::padded_to(int64_t alignment) const {
  const int64_t padded = round_up(size(), alignment);
  std::memset(buffer_.data() + size(), 0, static_cast<size_t>(padded - size()));
  return {buffer_.data(), static_cast<size_t>(padded)};
}

}  // namespace milepost
