// Safetensors: header to Catalog and back, index.json, and the layouts that torch's Hugging Face writer adds (spec dcp-format, section 9).
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

struct Entry {
  std::string name;
  DType dtype;
  Dims shape;
  int64_t offset = 0, length = 0;  // bytes; offset from the start of the FILE
  Dims saved_offsets;              // DCP_SHARDING_INFO: where this piece lies in the full tensor; empty: the tensor is whole
};

struct Header {
  std::vector<Entry> entries;                  // in order of offset
  std::map<std::string, std::string> metadata; // __metadata__
  int64_t header_bytes = 0;                    // 8 + JSON
  std::vector<std::string> warnings;
};

// Reads and checks a header with every rule of the format: length within the file and the limit, UTF-8, one JSON object, no duplicate keys, known dtypes, integral non-negative shapes and offsets, length = shape x dtype,
// the data exactly covered without overlap or hole. Throws FormatError (path, key = tensor, offset). Cost: one or two reads.
Header read_header(const ByteSource& file);

// index.json: tensor -> file, in file order, and the total size.
struct Index {
  std::vector<std::pair<std::string, std::string>> weight_map;
  int64_t total_size = -1;
};
// Throws FormatError: not JSON, wrong types, duplicate keys, a file name that is not a plain name in the same folder (kPathEscape, key = tensor).
Index read_index(const ByteSource& file);
std::string write_index(const Index& index);  // indent 2, keys sorted, as huggingface_hub writes it

// What is to be written, in catalog order. Payload p of the image belongs to the tensor `order[p]`.
struct OutTensor {
  std::string name;
  DType dtype;
  Dims shape;
};
struct Layout {
  std::unique_ptr<FileImage> image;
  std::vector<int64_t> order;  // payload -> index into the given tensors
};
// Tensors ordered by element size descending, then name, header padded with spaces to 8 bytes: the reference writer's layout. Throws FormatError kUnsupported (key) for dtypes without a name.
Layout file_layout(std::string name, const std::vector<OutTensor>& tensors, const std::map<std::string, std::string>& metadata);

// Assigns tensors, in the given order, to shards of at most `max_shard_bytes` of payload (a larger tensor gets one alone), as huggingface_hub does. Returns for each shard the tensor indexes. One shard is named
// model.safetensors, more are model-00001-of-0000N.safetensors.
std::vector<std::vector<int64_t>> assign_shards(const std::vector<OutTensor>& tensors, int64_t max_shard_bytes);
std::string shard_name(int64_t shard, int64_t num_shards);

}  // namespace milepost::safetensors
