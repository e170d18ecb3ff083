// Whole archives of objects: DCP object items and .pth files.
#include <fmt/format.h>

#include <cassert>
#include <numeric>

#include "format/torch_zip_frame.h"
#include "milepost/base/checksum.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

ByteVector encode(const pickle::Value& value) {
  VectorSink sink;
  pickle::write(value, sink);
  return std::move(sink.data);
}

// Literals have even indices, payloads odd ones.
class PthImage final : public FileImage {
 public:
  PthImage(std::string name, std::string_view stem, const pickle::Value& root,
           std::span<const std::string_view> keys, std::span<const int64_t> storage_bytes)
      : name_(std::move(name)), archive_(stem, encode(root), keys, storage_bytes, false) {}

  const std::string& name() const override { return name_; }
  int64_t size() const override { return frame().total(); }
  int64_t num_parts() const override { return 2 * frame().num_storages() + 1; }
  bool wants_crc() const override { return true; }

  Part part(int64_t index) const override {
    int64_t storage = index / 2;
    if (index % 2 == 1) return {frame().storage_position(storage), frame().storage_bytes(storage), storage};
    int64_t start =
        index == 0 ? 0 : frame().storage_position(storage - 1) + frame().storage_bytes(storage - 1);
    int64_t end = storage == frame().num_storages() ? frame().total() : frame().storage_position(storage);
    return {start, end - start, -1};
  }

  void render(int64_t index, std::span<const uint32_t> payload_crcs, ByteVector& out) const override {
    assert(index % 2 == 0);
    frame().append_literal(out, index / 2, payload_crcs);
  }

 private:
  const Frame& frame() const { return archive_.frame(); }

  std::string name_;
  ArchiveFrame archive_;
};

}  // namespace

ByteVector object_item(const pickle::Value& value, const std::vector<StorageBytes>& storages) {
  std::vector<std::string_view> keys;
  std::vector<int64_t> sizes;
  std::vector<uint32_t> crcs;
  for (const StorageBytes& storage : storages) {
    keys.push_back(storage.key);
    sizes.push_back(static_cast<int64_t>(storage.bytes.size()));
    crcs.push_back(crc32(0, storage.bytes));
  }
  ArchiveFrame archive("archive", encode(value), keys, sizes, true);
  ByteVector item;
  item.reserve(static_cast<size_t>(archive.frame().total()));
  for (size_t i = 0; i < storages.size(); ++i) {
    archive.frame().append_literal(item, static_cast<int64_t>(i), crcs);
    item.insert(item.end(), storages[i].bytes.begin(), storages[i].bytes.end());
  }
  archive.frame().append_literal(item, static_cast<int64_t>(storages.size()), crcs);
  return item;
}

std::unique_ptr<FileImage> pth_image(std::string name, std::string_view stem, const pickle::Value& root,
                                     const std::vector<int64_t>& storage_bytes) {
  std::vector<std::string> keys;
  keys.reserve(storage_bytes.size());
  for (size_t i = 0; i < storage_bytes.size(); ++i) keys.push_back(fmt::format("{}", i));
  std::vector<std::string_view> key_views(keys.begin(), keys.end());
  return std::make_unique<PthImage>(std::move(name), stem, root, key_views, storage_bytes);
}

}  // namespace milepost::torch_zip
