// A `.distcp` file is its items end to end: no header, no padding, no footer (spec dcp-format, section 1). A
// tensor item is a torch.save archive around the elements (torch_zip), an object item is an archive as it
// comes.
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/torch_zip.h"

namespace milepost::dcp {
namespace {

// Every item has three parts, of which an object item's first and last are empty, so that no table leads from
// parts to items.
constexpr int64_t kParts = 3;
enum PartOfItem : int64_t { kHead, kPayload, kTail };

class PackedDataFile final : public DataFileImage {
 public:
  PackedDataFile(std::string name, const std::vector<Item>& items) : name_(std::move(name)) {
    size_t num_dims = 0;
    for (const Item& item : items) num_dims += item.sizes.size();
    items_.reserve(items.size());
    dims_.reserve(num_dims);
    for (const Item& item : items) add(item);
  }

  const std::string& name() const override { return name_; }
  int64_t size() const override { return size_; }
  int64_t num_parts() const override { return num_items() * kParts; }
  bool wants_crc() const override { return wants_crc_; }
  Part part(int64_t index) const override;
  void render(int64_t index, std::span<const uint32_t> payload_crcs, ByteVector& out) const override;

  int64_t num_items() const override { return static_cast<int64_t>(items_.size()); }
  int64_t item_offset(int64_t item) const override { return items_[static_cast<size_t>(item)].offset; }
  int64_t item_length(int64_t item) const override { return end(item) - item_offset(item); }

 private:
  struct PackedItem {
    int64_t offset;
    int64_t first_dim;                // in dims_
    uint32_t head_bytes, tail_bytes;  // both 0 for an object
    uint8_t num_dims;
    DType dtype;
  };

  void add(const Item& item);
  int64_t end(int64_t item) const { return item + 1 < num_items() ? item_offset(item + 1) : size_; }
  DimsView sizes(const PackedItem& item) const {
    return DimsView(dims_).subspan(static_cast<size_t>(item.first_dim), item.num_dims);
  }

  std::string name_;
  std::vector<PackedItem> items_;
  std::vector<int64_t> dims_;
  int64_t size_ = 0;
  bool wants_crc_ = false;
};

void PackedDataFile::add(const Item& item) {
  assert(item.payload == num_items() && item.sizes.size() <= kMaxDims);
  PackedItem packed{size_, static_cast<int64_t>(dims_.size()), 0, 0, 0, item.dtype};
  int64_t length = item.raw_bytes;
  if (length < 0) {
    const torch_zip::ItemFrame frame = torch_zip::tensor_item_frame(item.dtype, item.sizes);
    packed.head_bytes = static_cast<uint32_t>(frame.head_bytes);
    packed.tail_bytes = static_cast<uint32_t>(frame.tail_bytes);
    packed.num_dims = static_cast<uint8_t>(item.sizes.size());
    dims_.insert(dims_.end(), item.sizes.begin(), item.sizes.end());
    length = frame.total();
    wants_crc_ = true;
  }
  if (!checked_add(size_, length, &size_)) {
    FormatError error(ErrorCode::kTooLarge, "the items are together larger than any file");
    error.set_path(name_);
    throw error;
  }
  items_.push_back(packed);
}

FileImage::Part PackedDataFile::part(int64_t index) const {
  const int64_t item = index / kParts;
  const PackedItem& packed = items_[static_cast<size_t>(item)];
  const int64_t payload = packed.offset + packed.head_bytes;
  const int64_t tail = end(item) - packed.tail_bytes;
  switch (index % kParts) {
    case kHead:
      return {packed.offset, packed.head_bytes, -1};
    case kPayload:
      return {payload, tail - payload, item};
    default:
      return {tail, packed.tail_bytes, -1};
  }
}

void PackedDataFile::render(int64_t index, std::span<const uint32_t> payload_crcs, ByteVector& out) const {
  const int64_t item = index / kParts;
  const PackedItem& packed = items_[static_cast<size_t>(item)];
  if (packed.head_bytes == 0) return;
  assert(index % kParts != kPayload);
  if (index % kParts == kHead) {
    torch_zip::append_tensor_item_head(out, packed.dtype, sizes(packed));
  } else {
    const uint32_t crc = payload_crcs[static_cast<size_t>(item)];
    torch_zip::append_tensor_item_tail(out, packed.dtype, sizes(packed), crc);
  }
}

}  // namespace

std::unique_ptr<DataFileImage> data_file_image(std::string name, const std::vector<Item>& items) {
  return std::make_unique<PackedDataFile>(std::move(name), items);
}

}  // namespace milepost::dcp
