// torch.save archives: DCP items (one tensor or one object each) and .pth files (nested state dicts).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/catalog/catalog.h"
#include "milepost/format/file_image.h"
#include "milepost/format/pickle.h"

namespace milepost::torch_zip {

// Where the elements of a DCP tensor item lie.
struct TensorItem {
  DType dtype;
  Dims sizes;
  StorageLayout layout;       // row-major strides and zero flags in the plain case
  bool row_major = false;     // plain: payload is exactly the elements in order
  int64_t payload_offset = 0; // bytes from the start of the item
  int64_t payload_bytes = 0;  // of the storage
  uint32_t crc32 = 0;         // as stored; 0 may mean "not taken"
};

// Finds the tensor in the archive `item`, reading its directory, data.pkl and byteorder but not the payload. Throws FormatError (path, offset): damaged zip, deflated payload (kUnsupported),
// an object that is not a tensor, a storage whose size is not what its record holds, strides that leave it, kRefusedGlobal. Cost: two small reads for items in torch's own shape.
TensorItem resolve_tensor(const ByteSource& item);

// An object item or any torch.save file's pickle.
struct Object {
  pickle::Document document;
  std::vector<std::string> storage_keys;  // records data/N that exist
};
Object read_object(const ByteSource& item, bool keep_unknown_globals);
// The bytes of one storage of an archive: a window of `archive` for stored records; checks size.
std::shared_ptr<const ByteSource> open_storage(std::shared_ptr<const ByteSource> archive, std::string_view storage_key);

// Whether the bytes are the pre-1.6 layout (a magic-number pickle) or a TorchScript archive; both are refused with FormatError kUnsupported and what to do.
void refuse_legacy(const ByteSource& file);

// A .pth file as a catalog: tensors by flattened key (section 4's rule, as torch_save_to_dcp gives), located in `file` (index `file_index` of the catalog, which is added); leaves that are not tensors are
// objects with file kNoFile, whose values are `object(key)`.
struct PthFile {
  Catalog catalog;
  pickle::Document document;
  std::vector<const pickle::Value*> object_values;  // by object index
};
PthFile read_pth(const ByteSource& file, std::string path_in_catalog);

// ---- writing ----

// Framing of one DCP tensor item: head + payload + tail, total a multiple of 64 so that items laid end to end keep their payloads 64-aligned in the file.
struct ItemFrame {
  int64_t head_bytes = 0, payload_bytes = 0, tail_bytes = 0;
  int64_t total() const { return head_bytes + payload_bytes + tail_bytes; }
};
ItemFrame tensor_item_frame(DType dtype, DimsView sizes);
void append_tensor_item_head(ByteVector& out, DType dtype, DimsView sizes);
void append_tensor_item_tail(ByteVector& out, DType dtype, DimsView sizes, uint32_t payload_crc);

// A whole object item (also with tensors inside, whose storages' bytes are given by key in order), true CRCs, total a multiple of 64.
struct StorageBytes {
  std::string key;
  Bytes bytes;
};
ByteVector object_item(const pickle::Value& value, const std::vector<StorageBytes>& storages);

// A .pth file: `root`'s tensors refer to storages "0".."n-1" of the given sizes (payload i = storage i). `stem` names the archive's top folder.
std::unique_ptr<FileImage> pth_image(std::string name, std::string_view stem, const pickle::Value& root, const std::vector<int64_t>& storage_bytes);

}  // namespace milepost::torch_zip
