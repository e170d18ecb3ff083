// Finding the tensor of a DCP item without reading its payload. In an item that torch wrote, data.pkl,
// byteorder and the local header of data/0 lie in the first KiB, version and the directory in the last: both
// are read once and all further reads are served from them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "format/torch_zip_archive.h"
#include "format/torch_zip_document.h"
#include "format/torch_zip_view.h"
#include "format/zip_error.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

// A window of a file whose ends are in memory.
class ItemSource final : public ByteSource {
 public:
  ItemSource(const ByteSource& file, int64_t offset, int64_t length)
      : file_(file), offset_(offset), length_(length) {
    if (file.data() != nullptr) {
      whole_ = file.data() + offset;
    } else if (length <= kWholeBytes) {
      file.read_at(offset, MutableBytes(buffer_).first(static_cast<size_t>(length)));
      whole_ = buffer_.data();
    } else {
      file.read_at(offset, MutableBytes(buffer_).first(kEndBytes));
      file.read_at(offset + length - kEndBytes, MutableBytes(buffer_).last(kEndBytes));
    }
  }

  int64_t size() const override { return length_; }
  const std::byte* data() const override { return whole_; }
  const std::string& name() const override { return file_.name(); }

  void read_at(int64_t offset, MutableBytes dst) const override {
    auto bytes = static_cast<int64_t>(dst.size());
    int64_t tail = length_ - kEndBytes;
    if (whole_ != nullptr && range_fits(offset, bytes, length_)) {
      std::copy_n(whole_ + offset, bytes, dst.data());
    } else if (whole_ == nullptr && range_fits(offset, bytes, kEndBytes)) {
      std::copy_n(buffer_.data() + offset, bytes, dst.data());
    } else if (whole_ == nullptr && offset >= tail && range_fits(offset, bytes, length_)) {
      std::copy_n(buffer_.data() + (kWholeBytes - kEndBytes) + (offset - tail), bytes, dst.data());
    } else {
      file_.read_at(offset_ + offset, dst);
    }
  }

 private:
  static constexpr int64_t kWholeBytes = 4096, kEndBytes = 1024;

  const ByteSource& file_;
  int64_t offset_, length_;
  const std::byte* whole_ = nullptr;
  std::array<std::byte, kWholeBytes> buffer_;
};

View read_view(Archive& archive, Bytes pickle, pickle::Document* document) {
  View view;
  if (match_tensor_pickle(pickle, &view.tensor)) return view;
  *document = read_document(archive, pickle, false);
  const pickle::Value& root = document->root();
  if (root.kind() != pickle::Kind::kTensor) {
    zip::fail(archive.source(), ErrorCode::kBadFormat, archive.pickle_record().data_offset,
              fmt::format("the item holds {}, not a tensor", describe(root)));
  }
  return View(root.tensor());
}

TensorItem resolve(const ByteSource& item) {
  Archive archive(item);
  ByteVector pickle = archive.read_pickle();
  pickle::Document document;
  View view = read_view(archive, pickle, &document);
  int64_t bytes = view.checked_bytes(item);
  const zip::Record& record = archive.storage(view.tensor.storage_key, view.tensor.storage_bytes);
  TensorItem result;
  result.dtype = view.tensor.dtype;
  result.layout = view.layout(archive.big_endian());
  result.row_major =
      view.is_plain(archive.big_endian()) && view.tensor.storage_offset == 0 && record.size == bytes;
  result.sizes = std::move(view.tensor.sizes);
  result.payload_offset = record.data_offset;
  result.payload_bytes = record.size;
  result.crc32 = record.crc32;
  return result;
}

}  // namespace

TensorItem resolve_tensor(const ByteSource& file, int64_t offset, int64_t length) {
  if (!range_fits(offset, length, file.size())) {
    zip::fail(file, ErrorCode::kOutOfBounds, offset,
              fmt::format("an item of {} bytes leaves the file, which has {}", length, file.size()));
  }
  ItemSource item(file, offset, length);
  try {
    return resolve(item);
  } catch (const FormatError& error) {
    throw zip::moved(error, offset);
  }
}

TensorItem resolve_tensor(const ByteSource& item) { return resolve_tensor(item, 0, item.size()); }

}  // namespace milepost::torch_zip
