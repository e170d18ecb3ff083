// PyTorch DCP: `.metadata` to Catalog and back, and the images of `.distcp` files (spec dcp-format, sections
// 1, 2, 13).
//
// A DCP checkpoint is a folder with one `.metadata`, a pickle that says which tensors there are, how they are
// cut into chunks and where each chunk lies, and data files `__{rank}_{n}.distcp`, which are items laid end
// to end: one torch.save archive (torch_zip.h) for each chunk and each object. Nothing here opens files or
// looks into items.
//
// Threads: the functions are reentrant; a Metadata and an image may be read by any number of threads.
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
  // Tensors and objects with locations of layout kTorchItem, paths from planner_data, files with unknown
  // sizes. A chunk without elements may have no location; everything else has one.
  Catalog catalog;
  std::string version;                 // "1.0.0"; empty when absent (before torch 2.7)
  std::string checkpoint_id, save_id;  // empty when absent
  std::string writer;                  // for people: "torch >= 2.9", "torch 2.4 to 2.8", "torch 2.1 to 2.3"
  // Odd but loadable: a future version, storage entries and paths that belong to nothing, another planner's
  // data.
  std::vector<std::string> warnings;
};

// Reads a `.metadata` pickle of any torch since 2.1, protocols 0 to 5. Nothing in it is executed or imported.
//
// Errors: FormatError with the source's name as path, and the byte (what the pickle machine finds) or the key
// (what the content shows):
//   kTruncated, kBadFormat  not a pickle, or not one of a Metadata object with the attributes of section 2
//   kRefusedGlobal          it names a class outside the table of section 2.1
//   kOutOfBounds            a chunk that leaves its tensor, a negative offset or length
//   kTooLarge               a shape whose bytes overflow, more than kMaxDims dimensions, a file beyond 8 GiB
//   kDuplicate              two chunks with the same offsets, two storage entries for the same chunk or
//   object kMissingKey             a chunk with elements, or an object, without a storage entry kPathEscape
//   a relative_path that is absolute, empty, or holds "..", "." or NUL kUnsupported            stream
//   extensions, by name
// and StorageError of the source. Overlaps and holes between chunks are not looked for (plan/overlap.h), nor
// whether the files exist. List positions in paths are as large as the file says: bound them before making
// lists.
//
// Cost: 1M chunks in about 0.25 s; the file is read in pieces of 256 KiB and 4 bytes are kept for each
// memoised object while reading, about 70 bytes a chunk besides the catalog. Files of an unusual shape take
// the way of read_metadata_general().
Metadata read_metadata(const ByteSource& source);

// The same by the general pickle machine alone: slower by an order of magnitude, and memory of many times the
// file's size, but for every shape that Python would accept. It words all errors, and is the oracle in tests.
Metadata read_metadata_general(const ByteSource& source);

struct WriteMetadataOptions {
  std::string checkpoint_id;  // the final folder's name
  std::string save_id;        // empty: a UUID derived from everything else that is written
};

// Writes what torch >= 2.9 would: version 1.0.0, requires_grad False, entries, chunks and storage entries in
// catalog order, and a path for every entry, as nested loading demands. Equal catalogs give equal bytes.
// Requires a location for each object and each chunk with elements (assert).
// Errors: those of the sink. Cost: 1M chunks in about 0.25 s, about 120 bytes a chunk, no memory that grows
// with chunks.
void write_metadata(const Catalog& catalog, const WriteMetadataOptions& options, ByteSink& sink);

// "__{rank}_{n}.distcp"
std::string data_file_name(int64_t rank, int64_t n);

// One item to be laid into a data file.
struct Item {
  int64_t payload = -1;  // index of the payload in the image: the item's own index
  DType dtype = DType::kFloat32;
  Dims sizes;              // tensor items: of the chunk
  int64_t raw_bytes = -1;  // object items: length of the whole archive, which is the payload
};

// The image of a data file. What `.metadata` records of item i is name(), item_offset(i) and item_length(i).
// Part 3i is the head of item i, 3i + 1 its payload i, 3i + 2 its tail; heads and tails of object items are
// empty.
class DataFileImage : public FileImage {
 public:
  virtual int64_t num_items() const = 0;
  virtual int64_t item_offset(int64_t item) const = 0;  // bytes from the start of the file
  virtual int64_t item_length(int64_t item) const = 0;
};

// Lays the items end to end in the given order. Without items the file is empty, as torch writes it.
// Errors: FormatError kTooLarge (path set) beyond 2^63 bytes, and kUnsupported for a dtype that torch lacks.
// Cost: below 1 us an item, and 32 bytes of memory and 8 a dimension; `items` itself is not kept.
std::unique_ptr<DataFileImage> data_file_image(std::string name, const std::vector<Item>& items);

}  // namespace milepost::dcp
