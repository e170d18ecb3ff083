#include "milepost/engine/scan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/report_progress.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/thread_pool.h"
#include "milepost/engine/reader.h"
#include "milepost/format/torch_zip.h"

namespace milepost {
namespace {

// A multiple of every element size, so that no piece cuts an element.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kWindowBytes = int64_t{2} << 20;

struct Worker {
  std::optional<TensorReader> reader;
  AlignedBuffer buffer;

  Bytes piece(const std::shared_ptr<const Checkpoint>& checkpoint, int64_t tensor, const Box& box,
              int64_t begin, int64_t end) {
    if (!reader) reader.emplace(checkpoint, kWindowBytes);
    const auto [view, available] = reader->view_linear(tensor, box, begin);
    if (available >= end - begin) return {view, static_cast<size_t>(end - begin)};
    if (buffer.size() == 0) buffer = AlignedBuffer(kPieceBytes);
    reader->read_linear(tensor, box, begin, end, buffer.data());
    return buffer.span().first(static_cast<size_t>(end - begin));
  }
};

int threads_for(const ScanOptions& options, size_t num_tasks) {
  const int64_t wanted = options.num_threads > 0 ? options.num_threads : default_num_threads();
  const int64_t affordable = options.max_memory_bytes / (kPieceBytes + kWindowBytes);
  return static_cast<int>(std::clamp<int64_t>(std::min<int64_t>(wanted, static_cast<int64_t>(num_tasks)), 1,
                                              std::max<int64_t>(affordable, 1)));
}

}  // namespace

void scan_tensors(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<int64_t>& tensors,
                  const ScanOptions& options,
                  const std::function<void(int64_t i, int64_t begin, Bytes bytes, int worker)>& visit) {
  const std::vector<Catalog::Tensor>& table = checkpoint->catalog().tensors();
  std::vector<int64_t> sizes(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) sizes[i] = tensor_bytes(table[static_cast<size_t>(tensors[i])]);
  std::vector<int64_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return sizes[static_cast<size_t>(a)] > sizes[static_cast<size_t>(b)];
  });
  for (const int64_t size : sizes) expect_bytes(options.progress, size);

  ThreadPool pool(threads_for(options, tensors.size()));
  std::vector<Worker> workers(static_cast<size_t>(pool.num_threads()));
  pool.run(static_cast<int64_t>(order.size()), [&](int64_t task, int worker) {
    const int64_t i = order[static_cast<size_t>(task)];
    const int64_t tensor = tensors[static_cast<size_t>(i)], size = sizes[static_cast<size_t>(i)];
    const Catalog::Tensor& info = table[static_cast<size_t>(tensor)];
    const Box box = Box::whole(info.shape);
    if (size == 0) visit(i, 0, {}, worker);
    for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
      const int64_t end = std::min(size, begin + kPieceBytes);
      const Bytes piece = workers[static_cast<size_t>(worker)].piece(checkpoint, tensor, box, begin, end);
      visit(i, begin, piece, worker);
      advance(options.progress, end - begin);
    }
  });
}

std::vector<Sha256Digest> hash_tensors(const std::shared_ptr<const Checkpoint>& checkpoint,
                                       const std::vector<int64_t>& tensors, const ScanOptions& options) {
  const std::vector<Catalog::Tensor>& table = checkpoint->catalog().tensors();
  std::vector<Sha256Digest> digests(tensors.size());
  std::vector<std::optional<Sha256>> hashes(
      static_cast<size_t>(options.num_threads > 0 ? options.num_threads : default_num_threads()));
  scan_tensors(checkpoint, tensors, options, [&](int64_t i, int64_t begin, Bytes bytes, int worker) {
    std::optional<Sha256>& hash = hashes[static_cast<size_t>(worker)];
    if (begin == 0) hash.emplace();
    hash->update(bytes);
    const int64_t size = tensor_bytes(table[static_cast<size_t>(tensors[static_cast<size_t>(i)])]);
    if (begin + static_cast<int64_t>(bytes.size()) == size) digests[static_cast<size_t>(i)] = hash->finish();
  });
  return digests;
}

std::string hash_object_tensor(const ObjectValue& object, const pickle::TensorRef& tensor) {
  Catalog catalog;
  std::shared_ptr<const ByteSource> storage = torch_zip::open_storage(object.archive, tensor.storage_key);
  const uint32_t file = catalog.add_file(storage->name(), storage->size());
  const Dims sizes(tensor.sizes.begin(), tensor.sizes.end());
  const StorageLayout layout{tensor.storage_offset, Dims(tensor.strides.begin(), tensor.strides.end()),
                             tensor.conj, tensor.neg, false};
  catalog.add_tensor("", tensor.dtype, sizes);
  catalog.add_chunk(Dims(sizes.size(), 0), sizes, {0, storage->size(), file, catalog.add_layout(layout)});
  ScanOptions options;
  options.num_threads = 1;
  return to_hex(
      hash_tensors(Checkpoint::in_memory(std::move(catalog), {std::move(storage)}, {}), {0}, options)[0]);
}

}  // namespace milepost
