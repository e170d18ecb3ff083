// PyTorch DCP: `.metadata` to Catalog and back, and the images of `.distcp` files (spec dcp-format, sections 1, 2 and 13).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/catalog/catalog.h"
#include "milepost/format/file_image.h"

namespace milepost::dcp {

inline constexpr std::string_view kMetadataName = ".metadata";

struct Metadata {
  Catalog catalog;               // tensors with Location::kTorchItem chunks, objects, paths, files (sizes unknown)
  std::string version;           // "1.0.0"; empty when absent
  std::string checkpoint_id, save_id;
  std::string writer;            // for people: "torch >= 2.9", "torch 2.4 to 2.8", "torch 2.1 to 2.3"
  std::vector<std::string> warnings;  // odd but loadable: future version, storage entries that nothing refers to
};

// Reads a `.metadata` pickle of any torch since 2.1, protocols 0 to 5. Throws FormatError (path = source's name, offset of the byte, key where known): damaged pickle, kRefusedGlobal, missing storage
// entry (key named), duplicate (fqn, offset), chunks out of bounds, sizes that overflow, paths that leave the folder (kPathEscape), kUnsupported for stream extensions (named).
// Overlaps and holes are not checked here (see plan/validate.h). Cost: 1M chunks in about 0.3 s; at most 300 bytes a chunk at the peak; the file is read through a small window.
Metadata read_metadata(const ByteSource& source);

// The same by the general pickle machine alone: slower, for odd shapes and as the oracle in tests. read_metadata() uses it whenever the fast path meets something unusual.
Metadata read_metadata_general(const ByteSource& source);

struct WriteMetadataOptions {
  std::string checkpoint_id;  // the final folder's name
  std::string save_id;        // empty: derived from the content
};
// Writes protocol 4, classes, names, paths and repeated objects memoised: <= 150 bytes a chunk. Entries in catalog order; chunks without a location are a bug (assert). Deterministic.
void write_metadata(const Catalog& catalog, const WriteMetadataOptions& options, ByteSink& sink);

// "__{rank}_{n}.distcp"
std::string data_file_name(int64_t rank, int64_t n);

// One item to be laid into a data file.
struct Item {
  int64_t payload = -1;     // tensor items: payload index of the image (given in order 0, 1, ...)
  DType dtype = DType::kFloat32;
  Dims sizes;               // of the chunk
  int64_t raw_bytes = -1;   // object items: length of the archive that is copied or made; payload = its index too
};
// The image of a data file: items end to end in the given order. item_offset(i) and item_length(i) give what `.metadata` records.
class DataFileImage : public FileImage {
 public:
  virtual int64_t num_items() const = 0;
  virtual int64_t item_offset(int64_t item) const = 0;
  virtual int64_t item_length(int64_t item) const = 0;
};
std::unique_ptr<DataFileImage> data_file_image(std::string name, std::vector<Item> items);

}  // namespace milepost::dcp
