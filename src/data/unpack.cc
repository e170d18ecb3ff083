#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "data/record_files.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

[[noreturn]] void fail(const ByteSource& source, ErrorCode code, const std::string& what, int64_t offset) {
  FormatError error(code, what, "fetch or compress the file again");
  error.set_path(source.name());
  error.set_offset(offset);
  throw error;
}

// The file's bytes in order.
class Chunks {
 public:
  explicit Chunks(const ByteSource& source) : source_(source), buffer_(kChunkBytes) {}

  std::span<std::byte> next() {
    const int64_t length = std::min(kChunkBytes, source_.size() - offset_);
    const std::span<std::byte> chunk(buffer_.data(), static_cast<size_t>(length));
    if (length > 0) source_.read_at(offset_, chunk);
    offset_ += length;
    return chunk;
  }
  int64_t offset() const { return offset_; }  // behind the last chunk

 private:
  const ByteSource& source_;
  int64_t offset_ = 0;
  ByteVector buffer_;
};

struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit2(&stream, 15 + 16) != Z_OK) throw std::bad_alloc();  // 16: a gzip header
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

}  // namespace

std::shared_ptr<const ByteSource> unpack_gzip(const ByteSource& source, Spool& spool) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  Chunks chunks(source);
  std::string out(kChunkBytes, '\0');
  bool at_member_end = false;
  for (std::span<std::byte> in = chunks.next(); !in.empty(); in = chunks.next()) {
    stream.next_in = reinterpret_cast<Bytef*>(in.data());
    stream.avail_in = static_cast<uInt>(in.size());
    while (stream.avail_in > 0) {
      if (at_member_end) inflateReset(&stream);
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      const int result = inflate(&stream, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        fail(source, ErrorCode::kBadFormat,
             std::string("damaged gzip data: ") + (stream.msg ? stream.msg : "unknown fault"),
             chunks.offset() - stream.avail_in);
      }
      at_member_end = result == Z_STREAM_END;
      spool.append(std::string_view(out).substr(0, out.size() - stream.avail_out));
    }
    // What inflate still holds back when the input is used up comes out without any.
    while (!at_member_end && stream.avail_out == 0) {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      at_member_end = inflate(&stream, Z_NO_FLUSH) == Z_STREAM_END;
      spool.append(std::string_view(out).substr(0, out.size() - stream.avail_out));
    }
  }
  if (!at_member_end) {
    fail(source, ErrorCode::kTruncated, "gzip file is cut short: its last member has no end", source.size());
  }
  return spool.finish();
}

std::shared_ptr<const ByteSource> unpack_zstd(const ByteSource& source, Spool& spool) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  if (!context) throw std::bad_alloc();
  Chunks chunks(source);
  std::string out(kChunkBytes, '\0');
  size_t wanted = 1;  // 0 at the end of a frame
  for (std::span<std::byte> in = chunks.next(); !in.empty(); in = chunks.next()) {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    bool is_full = false;
    while (input.pos < input.size || is_full) {
      ZSTD_outBuffer output{out.data(), out.size(), 0};
      wanted = ZSTD_decompressStream(context.get(), &output, &input);
      if (ZSTD_isError(wanted)) {
        fail(source, ErrorCode::kBadFormat, std::string("damaged zstd data: ") + ZSTD_getErrorName(wanted),
             chunks.offset() - static_cast<int64_t>(input.size - input.pos));
      }
      spool.append(std::string_view(out).substr(0, output.pos));
      is_full = output.pos == output.size && wanted != 0;
    }
  }
  if (wanted != 0) {
    fail(source, ErrorCode::kTruncated, "zstd file is cut short: its last frame has no end", source.size());
  }
  return spool.finish();
}

}  // namespace milepost::data
