#include "engine/verify_dcp_item.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/format/torch_zip.h"

namespace milepost {
namespace {

// Whether all dimensions but the first are whole.
bool is_rows(const Box& box, const Dims& shape) {
  if (shape.empty() || box.sizes[0] == shape[0]) return false;
  for (size_t d = 1; d < shape.size(); ++d) {
    if (box.sizes[d] != shape[d]) return false;
  }
  return true;
}

void check_tensor(const ByteSource& item, const ItemEntry& entry, const Place& place, Findings& findings) {
  const Catalog::Tensor& tensor = entry.tensor();
  const Box box = entry.catalog.chunk_box(tensor, entry.entry);
  const torch_zip::TensorItem stored = torch_zip::resolve_tensor(item);
  if (stored.dtype == tensor.dtype && stored.sizes == box.sizes) return;
  findings.error(ErrorCode::kShapeMismatch, place,
                 fmt::format("the index says {} {}, the stored item is {} {}", dims_text(box.sizes),
                             dtype_name(tensor.dtype), dims_text(stored.sizes), dtype_name(stored.dtype)),
                 "index and data file belong to different saves; restore both from one");
}

}  // namespace

const Catalog::Tensor& ItemEntry::tensor() const {
  const auto after =
      std::upper_bound(catalog.tensors().begin(), catalog.tensors().end(), entry,
                       [](int64_t chunk, const Catalog::Tensor& t) { return chunk < t.first_chunk; });
  return *std::prev(after);
}

const std::string& ItemEntry::name() const {
  return is_object() ? catalog.objects()[static_cast<size_t>(-1 - entry)].name : tensor().name;
}

std::string ItemEntry::text() const {
  std::string quoted = fmt::format("'{}'", printable(name()));
  if (is_object()) return quoted;
  const Catalog::Tensor& whole = tensor();
  const Box box = catalog.chunk_box(whole, entry);
  if (box.sizes == whole.shape) return quoted;
  if (is_rows(box, whole.shape)) {
    return fmt::format("{} rows {}:{}", quoted, box.offsets[0], box.offsets[0] + box.sizes[0]);
  }
  return fmt::format("{} {}", quoted, box_text(box));
}

void check_item(const std::shared_ptr<const ByteSource>& file, int64_t offset, int64_t length,
                const ItemEntry& entry, const std::string& path, bool payloads, MutableBytes block,
                Findings& findings, CrcTally* tally) {
  const Place place{path, entry.name(), offset};
  try {
    std::shared_ptr<const ByteSource> item;
    if (payloads && length <= static_cast<int64_t>(block.size())) {
      const MutableBytes bytes = block.first(static_cast<size_t>(length));
      file->read_at(offset, bytes);
      item = std::make_shared<MemorySource>(Bytes(bytes), path);
    } else {
      item = std::make_shared<SliceSource>(file, offset, length);
    }
    for (zip::Record& record : zip::read_directory(*item)) {
      check_record(*item, record, payloads, block, place, findings, tally);
    }
    if (entry.is_object()) {
      torch_zip::read_object(*item, false);
    } else {
      check_tensor(*item, entry, place, findings);
    }
  } catch (const Error& error) {
    findings.add(error, place);
  }
}

}  // namespace milepost
