// torch.save archives: DCP items (one tensor or one object each) and .pth files (nested state dicts), read
// and written (spec dcp-format, sections 3 and 8).
//
// Sources are only looked at during a call unless they are handed over as shared_ptr. Threads: all functions
// are reentrant. Errors: FormatError with path (the source's name), offset from the source's start and, where
// known, key; StorageError from the source passes through. Nothing here reads a tensor's payload.
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

// ---- reading ----

// Where the elements of a DCP tensor item lie.
struct TensorItem {
  DType dtype = DType::kFloat32;
  Dims sizes;
  StorageLayout layout;        // row-major strides and zero flags in the plain case
  bool row_major = false;      // plain: the payload is exactly the elements in order, little-endian
  int64_t payload_offset = 0;  // bytes from the start of the item
  int64_t payload_bytes = 0;   // of the storage
  uint32_t crc32 = 0;          // as stored; 0 may mean "not taken"
};

// Finds the tensor in the archive [offset, offset + length) of `file`, by its directory, data.pkl, version
// and byteorder. Throws FormatError: damaged zip, kUnsupported (deflated payload, see also refuse_legacy),
// kBadFormat for an object that is not a tensor or a storage whose size is not what its record holds, strides
// that leave it, kRefusedGlobal. Cost: for items in torch's own shape two reads of 1 KiB (one when the item
// has at most 4 KiB) and about 1 us.
TensorItem resolve_tensor(const ByteSource& file, int64_t offset, int64_t length);
TensorItem resolve_tensor(const ByteSource& item);

// An object item, or any torch.save file's pickle.
struct Object {
  pickle::Document document;
  std::vector<std::string> storage_keys;  // N of the records data/N, in the directory's order
};
// Throws FormatError as above; kRefusedGlobal only without `keep_unknown_globals` (see pickle::Options).
Object read_object(const ByteSource& item, bool keep_unknown_globals);

// The bytes of one storage of an archive: a window of `archive`, which it shares. Throws FormatError
// kBadFormat when there is no such record, kUnsupported when it is deflated. Cost: reads the directory again.
std::shared_ptr<const ByteSource> open_storage(std::shared_ptr<const ByteSource> archive,
                                               std::string_view storage_key);

// Throws FormatError kUnsupported, with what to do, when the bytes are the pre-1.6 layout (a magic-number
// pickle) or, in a zip, a TorchScript archive or one of a version or byte order that is not known. A damaged
// zip throws as elsewhere; other bytes pass.
void refuse_legacy(const ByteSource& file);

// A .pth file as a catalog: tensors and objects by flattened key (section 4's rule for torch >= 2.4, as
// torch_save_to_dcp gives them) in the order of the file, with their paths. A tensor has one chunk, whose
// location is the exact bytes of the view where these are row-major, else the part of the storage that the
// view spans and its layout; tensors that share a storage have ranges that overlap. Objects have no location:
// their values are in `document`, opaque where they name unknown classes.
struct PthFile {
  Catalog catalog;
  pickle::Document document;
  std::vector<const pickle::Value*> object_values;  // by object index
};
// `path_in_catalog` names the catalog's one file. Throws FormatError: as resolve_tensor (key set),
// kUnsupported when the file holds no dict at top level (what it holds is named) or a key that is neither
// text nor number, kDuplicate for two entries with one flattened key, kTooLarge for structures that unfold to
// much more than the file holds. Cost: one read for each storage.
PthFile read_pth(const ByteSource& file, std::string path_in_catalog);

// The text by which an entry below the dict key `key` is named: str(key). Throws FormatError kUnsupported for
// keys that are neither text, nor whole numbers, nor None.
std::string key_text(const pickle::Value& key);

// ---- writing ----

// Framing of one DCP tensor item: head + payload + tail. The total is a multiple of 64, so that items laid
// end to end keep their payloads 64-aligned in the file. The sizes depend on dtype and sizes only; the bytes
// are equal for equal arguments.
struct ItemFrame {
  int64_t head_bytes = 0, payload_bytes = 0, tail_bytes = 0;
  int64_t total() const { return head_bytes + payload_bytes + tail_bytes; }
};
// Throw FormatError kUnsupported for a dtype that torch lacks. Cost: below 1 us for the frame.
ItemFrame tensor_item_frame(DType dtype, DimsView sizes);
void append_tensor_item_head(ByteVector& out, DType dtype, DimsView sizes);
void append_tensor_item_tail(ByteVector& out, DType dtype, DimsView sizes, uint32_t payload_crc);

// A whole object item, also with tensors inside, whose storages' bytes are given in the order of the keys'
// first use; true CRCs, total a multiple of 64. Throws FormatError kUnsupported for values that cannot be
// written (see pickle::write).
struct StorageBytes {
  std::string key;
  Bytes bytes;
};
ByteVector object_item(const pickle::Value& value, const std::vector<StorageBytes>& storages);

// A .pth file: `root`'s tensors refer to storages "0".."n-1" of the given sizes (payload i = storage i, a
// part even when empty). `stem` names the archive's top folder, as torch.save names it after the file. `root`
// is encoded at once and not kept. Errors as object_item.
std::unique_ptr<FileImage> pth_image(std::string name, std::string_view stem, const pickle::Value& root,
                                     const std::vector<int64_t>& storage_bytes);

}  // namespace milepost::torch_zip
