#include "engine/conversion_identity.h"

#include <string>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost {
namespace {

// Hashes values with their lengths, so that no two sequences of values look alike.
class Fingerprint {
 public:
  void number(int64_t value) {
    buffer_.append(std::as_bytes(std::span(&value, 1)));
    flush(kFlushBytes);
  }
  void text(std::string_view value) { bytes(as_bytes(value)); }
  void bytes(Bytes value) {
    number(static_cast<int64_t>(value.size()));
    buffer_.append(value);
    flush(kFlushBytes);
  }
  void dims(DimsView values) {
    number(static_cast<int64_t>(values.size()));
    for (int64_t value : values) number(value);
  }
  void location(const Location& value) {
    for (int64_t part : {value.offset, value.length, int64_t{value.file}, int64_t{value.layout}})
      number(part);
  }
  Sha256Digest finish() {
    flush(1);
    return hash_.finish();
  }

 private:
  static constexpr size_t kFlushBytes = 4096;
  void flush(size_t from) {
    if (buffer_.data.size() < from) return;
    hash_.update(buffer_.data);
    buffer_.data.clear();
  }
  VectorSink buffer_;
  Sha256 hash_;
};

// Where the bytes of a derived checkpoint lie.
const Checkpoint& root_of(const Checkpoint& checkpoint) {
  const Checkpoint* root = &checkpoint;
  while (const auto* source = root->derivation().source) root = source->get();
  return *root;
}

Sha256Digest identify_source(const Checkpoint& source) {
  Fingerprint print;
  print.text(base_name(source.path()));
  print.text(format_name(source.format()));
  std::optional<StorageLocation> location;
  std::string folder;
  try {
    if (source.format() != CheckpointFormat::kMemory) location = resolve_location(source.path());
    const std::optional<FileInfo> info = location ? location->storage->stat(location->path) : std::nullopt;
    if (info) folder = info->is_directory ? location->path : parent_path(location->path);
  } catch (const Error&) {
    location.reset();
  }
  for (const Catalog::File& file : source.catalog().files()) {
    print.text(file.path);
    print.number(file.size_bytes);
    std::optional<FileInfo> info;
    try {
      if (location) info = location->storage->stat(join_path(folder, file.path));
    } catch (const Error&) {
    }
    print.number(info ? info->size_bytes : -1);
    print.number(info ? info->modified_ns : -1);
  }
  return print.finish();
}

void add_catalog(const Catalog& catalog, Fingerprint& print) {
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    print.text(tensor.name);
    print.number(static_cast<int64_t>(tensor.dtype));
    print.dims(tensor.shape);
    for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.num_chunks; ++chunk) {
      const Box box = catalog.chunk_box(tensor, chunk);
      print.dims(box.offsets);
      print.dims(box.sizes);
      print.location(catalog.chunk_location(chunk));
    }
  }
  for (const StorageLayout& layout : catalog.layouts()) {
    print.number(layout.storage_offset);
    print.dims(layout.strides);
    for (bool flag : {layout.conj, layout.neg, layout.byte_swap}) print.number(flag ? 1 : 0);
  }
}

void add_part(const TensorPart& part, Fingerprint& print) {
  print.number(static_cast<int64_t>(part.values));
  for (int64_t value : {part.first_row, part.num_rows, part.source, part.scales, part.order.group,
                        part.order.columns, part.block, static_cast<int64_t>(part.seed)}) {
    print.number(value);
  }
  print.dims(part.origin);
}

void add_checkpoint(const Checkpoint& checkpoint, Fingerprint& print) {
  add_catalog(checkpoint.catalog(), print);
  const Checkpoint::Derivation derivation = checkpoint.derivation();
  if (derivation.source == nullptr) return;
  for (const std::vector<TensorPart>& parts : derivation.map->parts) {
    print.number(static_cast<int64_t>(parts.size()));
    for (const TensorPart& part : parts) add_part(part, print);
  }
  add_checkpoint(**derivation.source, print);
}

void add_payload(const PayloadSource& source, const PayloadRef& payload, Fingerprint& print) {
  const auto item = static_cast<size_t>(payload.item);
  print.number(static_cast<int64_t>(payload.kind));
  switch (payload.kind) {
    case PayloadRef::Kind::kFileRange:
      return print.location(source.ranges[item]);
    case PayloadRef::Kind::kOwned:
      return print.bytes(source.owned[item]);
    case PayloadRef::Kind::kTensor:
      break;
  }
  const Box box = source.box(payload);
  print.number(source.views[item].source);
  print.number(static_cast<int64_t>(source.views[item].dtype));
  print.dims(box.offsets);
  print.dims(box.sizes);
}

// Literals are taken as if all payloads had the CRC 0, and by their own CRC: there may be a kilobyte of them
// a tensor.
void add_file(const OutputFile& file, Fingerprint& print) {
  const FileImage& image = *file.image;
  print.text(image.name());
  print.number(image.size());
  const std::vector<uint32_t> payload_crcs(file.payloads.size());
  ByteVector literal;
  for (int64_t i = 0; i < image.num_parts(); ++i) {
    const FileImage::Part part = image.part(i);
    print.number(part.length);
    if (part.payload >= 0) {
      add_payload(*file.source, file.payloads[static_cast<size_t>(part.payload)], print);
      continue;
    }
    literal.clear();
    image.render(i, payload_crcs, literal);
    print.number(crc32(0, literal));
  }
}

}  // namespace

ConversionIdentity identify_conversion(const Checkpoint& source, const OutputSet& output,
                                       CheckpointFormat format, std::span<const Sha256Digest> small_files) {
  Fingerprint plan;
  plan.text(format_name(format));
  add_checkpoint(source, plan);
  for (const OutputFile& file : output.files) add_file(file, plan);
  for (size_t i = 0; i < small_files.size(); ++i) {
    plan.text(output.small_files[i].name);
    plan.bytes(std::as_bytes(std::span(small_files[i])));
  }
  return {identify_source(root_of(source)), plan.finish()};
}

}  // namespace milepost
