#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "engine/element_reader.h"
#include "engine/strided_read.h"
#include "milepost/base/error.h"
#include "milepost/engine/reader.h"
#include "milepost/plan/overlap.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr size_t kMaxResolved = 256;

Dims scaled(DimsView strides, int64_t element_size) {
  Dims bytes(strides.begin(), strides.end());
  for (int64_t& stride : bytes) stride *= element_size;
  return bytes;
}

int64_t dot(DimsView a, DimsView b) {
  int64_t sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

Dims relative(const Dims& offsets, const Dims& origin) {
  Dims out(offsets.size());
  for (size_t d = 0; d < offsets.size(); ++d) out[d] = offsets[d] - origin[d];
  return out;
}

class StoredReader final : public ElementReader {
 public:
  StoredReader(const Checkpoint& checkpoint, int64_t window_bytes)
      : checkpoint_(checkpoint), reader_(window_bytes), window_bytes_(window_bytes) {}

  void read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) override;
  void read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) override;
  std::pair<const std::byte*, int64_t> view_linear(int64_t tensor, const Box& box, int64_t begin) override;
  int64_t bytes_read() const override { return reader_.bytes_read(); }

 private:
  const Catalog::Tensor& info_of(int64_t index) const {
    return checkpoint_.catalog().tensors()[static_cast<size_t>(index)];
  }

  // Valid until the next call. Only one chunk at a time keeps its file open: a tensor may lie in thousands.
  const StoredChunk& resolve(int64_t tensor_index, int64_t chunk) {
    auto it = resolved_.find(chunk);
    if (it != resolved_.end() && &it->second == current_) return *current_;
    if (current_ != nullptr) current_->file.reset();
    current_ = nullptr;
    if (it == resolved_.end()) {
      if (resolved_.size() >= kMaxResolved) resolved_.clear();
      it = resolved_.emplace(chunk, resolve_chunk(checkpoint_, tensor_index, chunk)).first;
    } else {
      it->second.file = checkpoint_.open_file(checkpoint_.catalog().chunk_location(chunk).file);
    }
    current_ = &it->second;
    return *current_;
  }

  const std::vector<ChunkFinder::Hit>& find(int64_t tensor_index, const Box& box) {
    if (finder_tensor_ != tensor_index) {
      finder_.emplace(checkpoint_.catalog(), tensor_index);
      finder_tensor_ = tensor_index;
    }
    finder_->find(box, &hits_);
    return hits_;
  }

  // The one chunk that is exactly `box`, when it is plain; else nullptr.
  const StoredChunk* whole_chunk(int64_t tensor_index, const Box& box) {
    const Catalog::Tensor& info = info_of(tensor_index);
    int64_t chunk = info.first_chunk;
    if (info.num_chunks > 1) {
      const auto& found = find(tensor_index, box);
      if (found.size() != 1) return nullptr;
      chunk = found[0].chunk;
    }
    if (info.num_chunks == 0 || checkpoint_.catalog().chunk_box(info, chunk) != box) return nullptr;
    const StoredChunk& stored = resolve(tensor_index, chunk);
    return stored.row_major ? &stored : nullptr;
  }

  void read_part(const Catalog::Tensor& info, const StoredChunk& stored, const Box& chunk_box,
                 const Box& part, std::byte* dst, DimsView dst_strides) {
    const int64_t element_size = dtype_size(info.dtype);
    const Dims strides =
        scaled(stored.row_major ? row_major_strides(chunk_box.sizes) : stored.layout.strides, element_size);
    const int64_t offset = stored.payload_offset + stored.layout.storage_offset * element_size +
                           dot(relative(part.offsets, chunk_box.offsets), strides);
    const StorageLayout& layout = stored.layout;
    if (!layout.conj && !layout.neg && !layout.byte_swap) {
      reader_.read({stored.file.get(), offset, part.sizes, strides, dst,
                    Dims(dst_strides.begin(), dst_strides.end()), element_size});
      return;
    }
    // Elements that must be changed go through scratch_ memory, a piece at a time.
    const int64_t total = part.num_elements(), at_once = std::max<int64_t>(window_bytes_ / element_size, 1);
    std::vector<Box> boxes;
    for (int64_t begin = 0; begin < total; begin += at_once) {
      split_linear_range(part.sizes, begin, std::min(total, begin + at_once), &boxes);
      for (const Box& box : boxes) {
        scratch_.resize(static_cast<size_t>(box.num_elements() * element_size));
        const Dims dense = scaled(row_major_strides(box.sizes), element_size);
        reader_.read({stored.file.get(), offset + dot(box.offsets, strides), box.sizes, strides,
                      scratch_.data(), dense, element_size});
        if (layout.byte_swap) swap_bytes(scratch_, info.dtype);
        if (layout.conj) apply_conj(scratch_, info.dtype);
        if (layout.neg) apply_neg(scratch_, info.dtype);
        copy_strided(dst + dot(box.offsets, dst_strides), dst_strides, scratch_.data(), dense, box.sizes,
                     element_size);
      }
    }
  }

  const Checkpoint& checkpoint_;
  StridedReader reader_;
  int64_t window_bytes_;
  std::unordered_map<int64_t, StoredChunk> resolved_;  // without their files, but for `current_`
  StoredChunk* current_ = nullptr;
  int64_t finder_tensor_ = -1;
  std::optional<ChunkFinder> finder_;
  std::vector<ChunkFinder::Hit> hits_;
  std::vector<Box> pieces_;
  ByteVector scratch_;
};

void StoredReader::read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) {
  const Catalog::Tensor& info = info_of(tensor);
  require_whole_bytes(info);
  if (box.empty()) return;
  try {
    int64_t covered = 0;
    for (const ChunkFinder::Hit& hit : find(tensor, box)) {
      const StoredChunk& stored = resolve(tensor, hit.chunk);
      const Box chunk_box = checkpoint_.catalog().chunk_box(info, hit.chunk);
      read_part(info, stored, chunk_box, hit.box,
                dst + dot(relative(hit.box.offsets, box.offsets), dst_strides), dst_strides);
      covered += hit.box.num_elements();
    }
    if (covered != box.num_elements()) {
      throw FormatError(covered < box.num_elements() ? ErrorCode::kHole : ErrorCode::kOverlap,
                        fmt::format("the chunks hold {} of the {} elements of {}", covered,
                                    box.num_elements(), box_text(box)),
                        "run `milepost verify` on the checkpoint");
    }
  } catch (Error& error) {
    error.set_key(info.name);
    throw;
  }
}

void StoredReader::read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) {
  if (begin >= end) return;
  const Catalog::Tensor& info = info_of(tensor);
  try {
    if (const StoredChunk* whole = whole_chunk(tensor, box)) {
      whole->file->read_at(whole->payload_offset + begin, {dst, static_cast<size_t>(end - begin)});
      reader_.count(end - begin);
      return;
    }
  } catch (Error& error) {
    error.set_key(info.name);
    throw;
  }
  const int64_t element_size = is_sub_byte(info.dtype) ? 1 : dtype_size(info.dtype);
  std::vector<Box>& pieces = pieces_;
  split_linear_range(box.sizes, begin / element_size, end / element_size, &pieces);
  for (Box& piece : pieces) {
    const Dims strides = scaled(row_major_strides(piece.sizes), element_size);
    for (size_t d = 0; d < box.offsets.size(); ++d) piece.offsets[d] += box.offsets[d];
    read(tensor, piece, dst, strides);
    dst += piece.num_elements() * element_size;
  }
}

std::pair<const std::byte*, int64_t> StoredReader::view_linear(int64_t tensor, const Box& box,
                                                               int64_t begin) {
  const StoredChunk* whole = whole_chunk(tensor, box);
  if (whole == nullptr || whole->file->data() == nullptr || begin >= whole->payload_bytes)
    return {nullptr, 0};
  return {whole->file->data() + whole->payload_offset + begin, whole->payload_bytes - begin};
}

}  // namespace

std::unique_ptr<ElementReader> make_stored_reader(const Checkpoint& checkpoint, int64_t window_bytes) {
  return std::make_unique<StoredReader>(checkpoint, window_bytes);
}

}  // namespace milepost
