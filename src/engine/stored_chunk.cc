#include <fmt/format.h>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/engine/reader.h"
#include "milepost/format/torch_zip.h"

namespace milepost {
namespace {

StoredChunk from_item(const Catalog::Tensor& tensor, const Box& box, const Location& location,
                      std::shared_ptr<const ByteSource> file) {
  torch_zip::TensorItem item = torch_zip::resolve_tensor(*file, location.offset, location.length);
  if (item.dtype != tensor.dtype || item.sizes != box.sizes) {
    FormatError error(ErrorCode::kShapeMismatch,
                      fmt::format("the index says {} {}, the stored item is {} {}", dtype_name(tensor.dtype),
                                  dims_text(box.sizes), dtype_name(item.dtype), dims_text(item.sizes)),
                      "index and data file belong to different saves; restore both from one");
    error.set_offset(location.offset);
    throw error;
  }
  return {std::move(file),        location.offset + item.payload_offset,
          item.payload_bytes,     item.row_major,
          std::move(item.layout), item.crc32};
}

StoredChunk from_raw(const Catalog& catalog, const Catalog::Tensor& tensor, const Box& box,
                     const Location& location, std::shared_ptr<const ByteSource> file) {
  if (!range_fits(location.offset, location.length, file->size())) {
    FormatError error(
        ErrorCode::kOutOfBounds,
        fmt::format("{} bytes from here on leave the file, which has {}", location.length, file->size()));
    error.set_offset(location.offset);
    throw error;
  }
  StoredChunk chunk{std::move(file), location.offset, location.length, true, {}, 0};
  if (location.layout >= Location::kFirstLayout) {
    chunk.row_major = false;
    chunk.layout = catalog.layouts()[location.layout - Location::kFirstLayout];
  } else if (dtype_bytes(tensor.dtype, box.num_elements()) != location.length) {
    FormatError error(ErrorCode::kBadFormat, fmt::format("{} bytes are stored for {} {}", location.length,
                                                         dtype_name(tensor.dtype), dims_text(box.sizes)));
    error.set_offset(location.offset);
    throw error;
  }
  return chunk;
}

}  // namespace

StoredChunk resolve_chunk(const Checkpoint& checkpoint, int64_t tensor_index, int64_t chunk) {
  const Catalog& catalog = checkpoint.catalog();
  const Catalog::Tensor& tensor = catalog.tensors()[static_cast<size_t>(tensor_index)];
  const Location& location = catalog.chunk_location(chunk);
  const Box box = catalog.chunk_box(tensor, chunk);
  std::string path;
  try {
    if (location.file == Location::kNoFile) {
      throw FormatError(ErrorCode::kMissingKey,
                        fmt::format("no data is recorded for the part {}", box_text(box)));
    }
    path = catalog.files()[location.file].path;
    std::shared_ptr<const ByteSource> file = checkpoint.open_file(location.file);
    return location.layout == Location::kTorchItem
               ? from_item(tensor, box, location, std::move(file))
               : from_raw(catalog, tensor, box, location, std::move(file));
  } catch (Error& error) {
    if (error.code() == ErrorCode::kMissingFile) {
      error.set_hint(
          fmt::format("it holds the part {} of this tensor; restore the file from a copy of the checkpoint",
                      box_text(box)));
    }
    error.set_path(path).set_key(tensor.name);
    throw;
  }
}

}  // namespace milepost
