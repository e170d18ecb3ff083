#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

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

}  // namespace

struct TensorReader::State {
  std::shared_ptr<const Checkpoint> checkpoint;
  StridedReader reader;
  int64_t window_bytes;
  std::unordered_map<int64_t, StoredChunk> resolved;  // without their files, but for `current`
  StoredChunk* current = nullptr;
  int64_t finder_tensor = -1;
  std::optional<ChunkFinder> finder;
  std::vector<ChunkFinder::Hit> hits;
  std::vector<Box> pieces;
  ByteVector scratch;

  State(std::shared_ptr<const Checkpoint> source, int64_t window)
      : checkpoint(std::move(source)), reader(window), window_bytes(window) {}

  const Catalog::Tensor& tensor(int64_t index) const {
    return checkpoint->catalog().tensors()[static_cast<size_t>(index)];
  }

  // Valid until the next call. Only one chunk at a time keeps its file open: a tensor may lie in thousands.
  const StoredChunk& resolve(int64_t tensor_index, int64_t chunk) {
    auto it = resolved.find(chunk);
    if (it != resolved.end() && &it->second == current) return *current;
    if (current != nullptr) current->file.reset();
    current = nullptr;
    if (it == resolved.end()) {
      if (resolved.size() >= kMaxResolved) resolved.clear();
      it = resolved.emplace(chunk, resolve_chunk(*checkpoint, tensor_index, chunk)).first;
    } else {
      it->second.file = checkpoint->open_file(checkpoint->catalog().chunk_location(chunk).file);
    }
    current = &it->second;
    return *current;
  }

  const std::vector<ChunkFinder::Hit>& find(int64_t tensor_index, const Box& box) {
    if (finder_tensor != tensor_index) {
      finder.emplace(checkpoint->catalog(), tensor_index);
      finder_tensor = tensor_index;
    }
    finder->find(box, &hits);
    return hits;
  }

  // The one chunk that is exactly `box`, when it is plain; else nullptr.
  const StoredChunk* whole_chunk(int64_t tensor_index, const Box& box) {
    const Catalog::Tensor& info = tensor(tensor_index);
    int64_t chunk = info.first_chunk;
    if (info.num_chunks > 1) {
      const auto& found = find(tensor_index, box);
      if (found.size() != 1) return nullptr;
      chunk = found[0].chunk;
    }
    if (info.num_chunks == 0 || checkpoint->catalog().chunk_box(info, chunk) != box) return nullptr;
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
      reader.read({stored.file.get(), offset, part.sizes, strides, dst,
                   Dims(dst_strides.begin(), dst_strides.end()), element_size});
      return;
    }
    // Elements that must be changed go through scratch memory, a piece at a time.
    const int64_t total = part.num_elements(), at_once = std::max<int64_t>(window_bytes / element_size, 1);
    std::vector<Box> boxes;
    for (int64_t begin = 0; begin < total; begin += at_once) {
      split_linear_range(part.sizes, begin, std::min(total, begin + at_once), &boxes);
      for (const Box& box : boxes) {
        scratch.resize(static_cast<size_t>(box.num_elements() * element_size));
        const Dims dense = scaled(row_major_strides(box.sizes), element_size);
        reader.read({stored.file.get(), offset + dot(box.offsets, strides), box.sizes, strides,
                     scratch.data(), dense, element_size});
        if (layout.byte_swap) swap_bytes(scratch, info.dtype);
        if (layout.conj) apply_conj(scratch, info.dtype);
        if (layout.neg) apply_neg(scratch, info.dtype);
        copy_strided(dst + dot(box.offsets, dst_strides), dst_strides, scratch.data(), dense, box.sizes,
                     element_size);
      }
    }
  }
};

TensorReader::TensorReader(std::shared_ptr<const Checkpoint> checkpoint, int64_t window_bytes)
    : state_(std::make_unique<State>(std::move(checkpoint), window_bytes)) {}
TensorReader::~TensorReader() = default;
TensorReader::TensorReader(TensorReader&&) noexcept = default;

const Checkpoint& TensorReader::checkpoint() const { return *state_->checkpoint; }
int64_t TensorReader::bytes_read() const { return state_->reader.bytes_read(); }

void TensorReader::read(int64_t tensor, const Box& box, std::byte* dst, DimsView dst_strides) {
  const Catalog::Tensor& info = state_->tensor(tensor);
  if (is_sub_byte(info.dtype)) {
    FormatError error(ErrorCode::kUnsupported,
                      fmt::format("{} tensors can only be read whole", dtype_name(info.dtype)));
    error.set_key(info.name);
    throw error;
  }
  if (box.empty()) return;
  try {
    int64_t covered = 0;
    for (const ChunkFinder::Hit& hit : state_->find(tensor, box)) {
      const StoredChunk& stored = state_->resolve(tensor, hit.chunk);
      const Box chunk_box = state_->checkpoint->catalog().chunk_box(info, hit.chunk);
      state_->read_part(info, stored, chunk_box, hit.box,
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

void TensorReader::read_linear(int64_t tensor, const Box& box, int64_t begin, int64_t end, std::byte* dst) {
  if (begin >= end) return;
  const Catalog::Tensor& info = state_->tensor(tensor);
  try {
    if (const StoredChunk* whole = state_->whole_chunk(tensor, box)) {
      whole->file->read_at(whole->payload_offset + begin, {dst, static_cast<size_t>(end - begin)});
      state_->reader.count(end - begin);
      return;
    }
  } catch (Error& error) {
    error.set_key(info.name);
    throw;
  }
  const int64_t element_size = is_sub_byte(info.dtype) ? 1 : dtype_size(info.dtype);
  std::vector<Box>& pieces = state_->pieces;
  split_linear_range(box.sizes, begin / element_size, end / element_size, &pieces);
  for (Box& piece : pieces) {
    const Dims strides = scaled(row_major_strides(piece.sizes), element_size);
    for (size_t d = 0; d < box.offsets.size(); ++d) piece.offsets[d] += box.offsets[d];
    read(tensor, piece, dst, strides);
    dst += piece.num_elements() * element_size;
  }
}

std::pair<const std::byte*, int64_t> TensorReader::view_linear(int64_t tensor, const Box& box,
                                                               int64_t begin) {
  const StoredChunk* whole = state_->whole_chunk(tensor, box);
  if (whole == nullptr || whole->file->data() == nullptr || begin >= whole->payload_bytes)
    return {nullptr, 0};
  return {whole->file->data() + whole->payload_offset + begin, whole->payload_bytes - begin};
}

}  // namespace milepost
