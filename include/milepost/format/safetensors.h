// Safetensors: header to entries and back, index.json, and the layouts that torch's Hugging Face writer adds
// (spec dcp-format, section 9).
//
// Reading never touches tensor data. Writing describes files (FileImage) for the engine to fill.
// Threads: free functions without shared state; call them from anywhere.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/format/file_image.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost::safetensors {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference library's limit
inline constexpr int64_t kMaxIndexBytes = 100'000'000;   // ours; the largest published model needs 10 MB

// A tensor, or a piece of one, in one file.
struct Entry {
  std::string name;
  DType dtype;
  Dims shape;  // in elements of dtype: a float4 pair, which the file counts as two values, is one
  int64_t offset = 0, length = 0;  // bytes; offset from the start of the FILE
  Dims saved_offsets;  // DCP_SHARDING_INFO: where this piece starts in the full tensor; empty: whole
};

struct Header {
  std::vector<Entry> entries;                   // in order of offset
  std::map<std::string, std::string> metadata;  // __metadata__
  int64_t header_bytes = 0;                     // where the data start: 8 + the JSON with its padding
  std::vector<std::string> warnings;            // what the format forbids but its reference library reads
};

// Reads and checks a header with every rule of the format: length within the file and the limit, UTF-8, one
// JSON object, no duplicate names, known dtypes, integral non-negative shapes and offsets, length = shape x
// dtype, the data covered exactly once; and of DCP_SHARDING_INFO: as many offsets as dimensions, none
// negative.
//
// Warned of and read: white space before the brace, unknown fields, sharding information for absent tensors.
// Throws FormatError (path, key = tensor, offset where a byte is at fault), StorageError.
// Cost: one or two reads, 1 to 2 us a tensor. Memory: the header and about 200 bytes a tensor; nothing is
// allocated for a length that the file does not have.
Header read_header(const ByteSource& file);

// index.json: which file holds each tensor.
struct Index {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor -> file, in the order of the index
  int64_t total_size = -1;                                      // payload bytes; -1: not said
};

// Throws FormatError: not JSON, wrong types, no weight_map, duplicate names, a file name that is not a plain
// name in the same folder (kPathEscape, key = tensor; subfolders too). Whether the files exist is for the
// caller to find out.
Index read_index(const ByteSource& file);

// Indent 2, keys sorted, other than ASCII escaped, no final newline: json.dumps(indent=2, sort_keys=True) of
// Python. Throws FormatError kUnsupported (key) for names that are not UTF-8.
std::string write_index(const Index& index);

// What is to be written, in catalog order.
struct OutTensor {
  std::string name;
  DType dtype;
  Dims shape;  // as in Entry
};

// The file that holds the given tensors. Payload p of the image belongs to tensors[order[p]].
struct Layout {
  std::unique_ptr<FileImage> image;
  std::vector<int64_t> order;
};

// The reference writer's file, byte for byte: dtypes by falling element size in its order, then names;
// padding by spaces to 8 bytes. (It orders `metadata` at random, here it is sorted; an empty one is left
// out.) Part 0 is the header, part p + 1 payload p, which may be empty; no CRCs are wanted. The given vector
// is not kept.
//
// Throws FormatError (key): kUnsupported for a dtype that safetensors has no name for, for a 0-d float4, for
// a name that is __metadata__ or not UTF-8; kDuplicate; kTooLarge for sizes and for a header over the limit.
Layout file_layout(std::string name, const std::vector<OutTensor>& tensors,
                   const std::map<std::string, std::string>& metadata);

// Spreads tensors, in the given order, over shards of at most `max_shard_bytes` of payload as huggingface_hub
// does: a shard is closed by the first tensor that would pass the limit; a tensor larger than the limit gets
// a shard of its own, listed before the one that is being filled. Returns tensor indexes for each shard, at
// least one shard (empty for no tensors). Throws ValueError when max_shard_bytes < 1, FormatError kTooLarge
// (key) for a shape without a size in bytes.
std::vector<std::vector<int64_t>> assign_shards(const std::vector<OutTensor>& tensors,
                                                int64_t max_shard_bytes);

// "model-00002-of-00005.safetensors" for shard 1 of 5; "model.safetensors" for the only one.
std::string shard_name(int64_t shard, int64_t num_shards);

}  // namespace milepost::safetensors
