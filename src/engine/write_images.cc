// How files are written:
//
// 1. All files are cut into blocks. As many files as there are workers are written at once, their blocks
//    taken in turn: a file system lets one writer at a time into a file.
// 2. A worker fills the payload bytes of its block, and takes the CRC of each piece while it is in the cache.
// 3. It waits until the blocks before it in the file have handed in their CRCs, adds its own, and lets the
//    next one go on. (Blocks start in order, so whoever is waited for is at work.) A block that fails stops
//    those after it only, so that the error reported does not depend on who was faster.
// 4. Now every payload before any literal of the block is complete: the literals are rendered.
// 5. The block is written; the worker that writes a file's last block cuts it to size, syncs and closes it.
// 6. With a journal, the block's CRC goes there afterwards. Where one is there from an interrupted run, the
//    block is read back instead of 2, and if it is as recorded, 4 and 5 are left out.
#include "engine/write_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>

#include "engine/block_order.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/base/thread_pool.h"

namespace milepost {
namespace {

// Large enough to keep a disk busy from two threads.
constexpr int64_t kDirectBlock = Journal::kMaxBlockBytes;
// Stays in the second-level cache between checksum and write.
constexpr int64_t kBufferedBlock = Journal::kMinBlockBytes;
constexpr int64_t kCopyBytes = 256 << 10;     // copied and checksummed at a time
constexpr int64_t kPerWorkerExtra = 4 << 20;  // window and cast scratch of a PayloadFiller, rendered literals
constexpr int64_t kCombineFrom = 32 << 10;    // combining two CRCs takes as long as making one of 20 KiB

// Thrown for a block that comes after a failed one of its file; never seen by callers, since the pool
// rethrows the failure of the first block.
struct Aborted {};

struct FileState {
  const OutputFile* file = nullptr;
  const std::string* path = nullptr;
  int64_t num_blocks = 0;
  std::mutex mutex;
  std::condition_variable turn;
  // Guarded by mutex (an entry of crcs may be read without it once its payload is complete).
  std::unique_ptr<WritableFile> out;
  std::unique_ptr<ByteSource> written;  // what an interrupted run left of it, if anything
  std::vector<uint32_t> crcs;
  int64_t next_block = 0;  // whose turn it is to hand in CRCs
  int64_t blocks_left = 0;
  int64_t failed_block = std::numeric_limits<int64_t>::max();  // the first that failed
};

// One stretch of a block that comes from a payload.
struct Piece {
  int64_t payload, begin, length;
  size_t first_part, num_parts;  // of Worker::parts
  uint32_t crc;
};

struct Worker {
  AlignedBuffer buffer;
  std::vector<Bytes> parts;
  std::vector<Piece> pieces;
  ByteVector literal;
  const PayloadSource* source = nullptr;
  std::unique_ptr<PayloadFiller> filler;

  PayloadFiller& filler_of(const PayloadSource& wanted) {
    if (source != &wanted) {
      filler = std::make_unique<PayloadFiller>(wanted);
      source = &wanted;
    }
    return *filler;
  }
};

// The part of the image that holds byte `offset`.
int64_t find_part(const FileImage& image, int64_t offset) {
  int64_t low = 0, high = image.num_parts();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (image.part(middle).offset <= offset ? low : high) = middle;
  }
  return low;
}

class ImageWriter {
 public:
  ImageWriter(Storage& storage, const std::vector<std::string>& paths, const std::vector<OutputFile>& files,
              const WriteOptions& options, Journal* journal)
      : storage_(storage), options_(options), journal_(journal), files_(files.size()) {
    int64_t total = 0;
    std::vector<int64_t> counts;
    for (size_t i = 0; i < files.size(); ++i) {
      files_[i].file = &files[i];
      files_[i].path = &paths[i];
    }
    block_bytes_ = block_size();
    if (journal_ != nullptr) journal_->set_block_bytes(block_bytes_);
    for (size_t i = 0; i < files.size(); ++i) {
      FileState& state = files_[i];
      state.num_blocks = state.blocks_left =
          std::max<int64_t>(1, ceil_div(files[i].image->size(), block_bytes_));
      counts.push_back(state.num_blocks);
      total += files[i].image->size();
    }
    order_ = std::make_unique<BlockOrder>(counts, options.num_threads);
    if (options.progress != nullptr) options.progress->total_bytes += total;
  }

  void run(ThreadPool& pool) {
    workers_.resize(static_cast<size_t>(pool.num_threads()));
    pool.run(order_->size(), [this](int64_t position, int worker) {
      const BlockOrder::Place place = order_->at(position);
      FileState& state = files_[static_cast<size_t>(place.file)];
      try {
        write_block(state, place.block, workers_[static_cast<size_t>(worker)]);
      } catch (...) {
        std::lock_guard lock(state.mutex);
        state.failed_block = std::min(state.failed_block, place.block);
        state.turn.notify_all();
        throw;
      }
    });
  }

 private:
  int64_t block_size() {
    if (journal_ != nullptr && journal_->block_bytes() > 0) return journal_->block_bytes();
    open(files_[0]);  // to learn the alignment
    if (files_[0].out->alignment() == 1) return kBufferedBlock;
    const int workers = options_.num_threads;
    const int64_t share = options_.max_memory_bytes / workers - kPerWorkerExtra;
    return std::clamp(round_down(share, AlignedBuffer::kAlignment), kBufferedBlock, kDirectBlock);
  }

  size_t index_of(const FileState& state) const { return static_cast<size_t>(&state - files_.data()); }

  void open(FileState& state) {
    if (journal_ != nullptr && journal_->has_records(index_of(state))) {
      try {
        state.written = storage_.open_read(*state.path);
      } catch (const Error&) {  // then all of it is written
      }
    }
    const int64_t size = state.file->image->size();
    state.out = storage_.open_write(*state.path, {size, options_.direct, state.written != nullptr});
    state.crcs.resize(state.file->payloads.size());
  }

  WritableFile& open_file(FileState& state, int64_t block) {
    std::lock_guard lock(state.mutex);
    if (state.failed_block < block) throw Aborted{};
    if (state.out == nullptr) open(state);
    return *state.out;
  }

  void write_block(FileState& state, int64_t block, Worker& worker) {
    if (options_.progress != nullptr && options_.progress->cancel) {
      throw Error(ErrorCode::kIo, "cancelled; the destination is as it was");
    }
    WritableFile& out = open_file(state, block);
    const FileImage& image = *state.file->image;
    const int64_t begin = block * block_bytes_, end = std::min(image.size(), begin + block_bytes_);
    const bool direct = out.alignment() > 1;
    if (worker.buffer.size() == 0) worker.buffer = AlignedBuffer(block_bytes_);
    const bool kept = is_written(state, block, begin, end, worker);
    if (!kept) gather_payloads(state, begin, end, direct, worker);
    if (image.wants_crc()) hand_in_checksums(state, block, worker);
    if (!kept) render_literals(state, begin, end, worker);
    if (end > begin && !kept) {
      const uint32_t crc = journal_ != nullptr ? block_crc(worker) : 0;
      if (direct) {
        const int64_t padded = round_up(end - begin, out.alignment());
        std::memset(worker.buffer.data() + (end - begin), 0, static_cast<size_t>(padded - (end - begin)));
        worker.parts.assign(1, Bytes(worker.buffer.data(), static_cast<size_t>(padded)));
      }
      out.write_at(begin, worker.parts);
      if (journal_ != nullptr) journal_->add(index_of(state), block, crc, end - begin);
    }
    finish_block(state, out);
    if (options_.progress != nullptr) options_.progress->done_bytes += end - begin;
  }

  // Whether the block lies in the file as the journal says; its pieces then have their CRCs.
  bool is_written(const FileState& state, int64_t block, int64_t begin, int64_t end, Worker& worker) {
    if (state.written == nullptr || end == begin) return false;
    const std::optional<uint32_t> crc = journal_->recorded_crc(index_of(state), block);
    if (!crc) return false;
    const MutableBytes bytes = worker.buffer.span().first(static_cast<size_t>(end - begin));
    try {
      state.written->read_at(begin, bytes);
    } catch (const Error&) {
      return false;
    }
    if (crc32(0, bytes) != *crc) return false;
    journal_->add_kept(end - begin);
    worker.pieces.clear();
    if (!state.file->image->wants_crc()) return true;
    for_parts(*state.file->image, begin, end,
              [&](int64_t, const FileImage::Part& part, int64_t low, int64_t high) {
                if (part.payload < 0) return;
                const Bytes piece =
                    bytes.subspan(static_cast<size_t>(low - begin), static_cast<size_t>(high - low));
                worker.pieces.push_back({part.payload, low - part.offset, high - low, 0, 0, crc32(0, piece)});
              });
    return true;
  }

  // Of all parts, one after another.
  static uint32_t block_crc(const Worker& worker) {
    uint32_t crc = 0;
    size_t next = 0;
    const auto go_on_to = [&](size_t end) {
      for (; next < end; ++next) crc = crc32(crc, worker.parts[next]);
    };
    for (const Piece& piece : worker.pieces) {
      if (piece.length < kCombineFrom) continue;
      go_on_to(piece.first_part);
      crc = crc32_combine(crc, piece.crc, piece.length);
      next += piece.num_parts;
    }
    go_on_to(worker.parts.size());
    return crc;
  }

  // Calls visit(part index, part, first byte, last byte) for the parts of the image inside [begin, end).
  template <typename Visit>
  static void for_parts(const FileImage& image, int64_t begin, int64_t end, Visit&& visit) {
    if (begin >= end) return;
    for (int64_t i = find_part(image, begin); i < image.num_parts(); ++i) {
      const FileImage::Part part = image.part(i);
      if (part.offset >= end) break;
      const int64_t low = std::max(begin, part.offset), high = std::min(end, part.offset + part.length);
      if (low < high) visit(i, part, low, high);
    }
  }

  // Fills payload stretches into the buffer at their place in the block, or points at them in memory where
  // the file takes any address.
  void gather_payloads(FileState& state, int64_t begin, int64_t end, bool direct, Worker& worker) {
    const FileImage& image = *state.file->image;
    const bool takes_crc = image.wants_crc() || journal_ != nullptr;
    worker.pieces.clear();
    worker.parts.clear();
    for_parts(image, begin, end, [&](int64_t, const FileImage::Part& part, int64_t low, int64_t high) {
      std::byte* place = worker.buffer.data() + (low - begin);
      if (part.payload < 0) {
        worker.parts.emplace_back(place, static_cast<size_t>(high - low));
        return;
      }
      const PayloadRef& payload = state.file->payloads[static_cast<size_t>(part.payload)];
      PayloadFiller& filler = worker.filler_of(*state.file->source);
      Piece piece{part.payload, low - part.offset, high - low, worker.parts.size(), 0, 0};
      while (low < high) {
        const int64_t at = low - part.offset;
        auto [memory, available] = filler.view(payload, at);
        int64_t count = high - low;
        place = worker.buffer.data() + (low - begin);
        if (memory == nullptr) {
          filler.fill(payload, at, at + count, place);
          memory = place;
        } else {
          count = std::min(available, count);
          if (direct) {
            count = std::min(count, kCopyBytes);
            std::memcpy(place, memory, static_cast<size_t>(count));
            memory = place;
          }
        }
        const Bytes bytes(memory, static_cast<size_t>(count));
        if (takes_crc) piece.crc = crc32(piece.crc, bytes);
        worker.parts.push_back(bytes);
        low += count;
      }
      piece.num_parts = worker.parts.size() - piece.first_part;
      worker.pieces.push_back(piece);
    });
  }

  void hand_in_checksums(FileState& state, int64_t block, const Worker& worker) {
    std::unique_lock lock(state.mutex);
    state.turn.wait(lock, [&] { return state.failed_block < block || state.next_block == block; });
    if (state.failed_block < block) throw Aborted{};
    for (const Piece& piece : worker.pieces) {
      uint32_t& crc = state.crcs[static_cast<size_t>(piece.payload)];
      crc = piece.begin == 0 ? piece.crc : crc32_combine(crc, piece.crc, piece.length);
    }
    ++state.next_block;
    state.turn.notify_all();
  }

  void render_literals(FileState& state, int64_t begin, int64_t end, Worker& worker) {
    const FileImage& image = *state.file->image;
    for_parts(image, begin, end, [&](int64_t i, const FileImage::Part& part, int64_t low, int64_t high) {
      if (part.payload >= 0) return;
      worker.literal.clear();
      image.render(i, state.crcs, worker.literal);
      std::memcpy(worker.buffer.data() + (low - begin), worker.literal.data() + (low - part.offset),
                  static_cast<size_t>(high - low));
    });
  }

  void finish_block(FileState& state, WritableFile& out) {
    {
      std::lock_guard lock(state.mutex);
      if (--state.blocks_left > 0) return;
    }
    if (out.alignment() > 1 || state.written != nullptr) out.truncate(state.file->image->size());
    try {
      if (options_.sync) out.sync();
      out.close();
    } catch (const Error&) {
      if (journal_ != nullptr) journal_->forget(index_of(state));
      throw;
    }
    std::lock_guard lock(state.mutex);
    state.out.reset();
    state.written.reset();
  }

  Storage& storage_;
  const WriteOptions& options_;
  Journal* const journal_;
  std::vector<FileState> files_;
  std::vector<Worker> workers_;
  int64_t block_bytes_ = kBufferedBlock;
  std::unique_ptr<BlockOrder> order_;
};

WriteOptions with_defaults(WriteOptions options, int64_t block_bytes = kBufferedBlock) {
  if (options.num_threads <= 0) options.num_threads = default_num_threads();
  // Every worker needs a block and its extras; fewer workers keep a small budget.
  const int64_t most = options.max_memory_bytes / (block_bytes + kPerWorkerExtra);
  options.num_threads =
      static_cast<int>(std::clamp<int64_t>(options.num_threads, 1, std::max<int64_t>(most, 1)));
  return options;
}

}  // namespace

int64_t write_buffer_bytes(const WriteOptions& given) {
  const WriteOptions options = with_defaults(given);
  return std::min<int64_t>(options.max_memory_bytes, options.num_threads * (kDirectBlock + kPerWorkerExtra));
}

void write_images(Storage& storage, const std::vector<std::string>& paths,
                  const std::vector<OutputFile>& files, const WriteOptions& given, Journal* journal) {
  if (files.empty()) return;
  const bool continues = journal != nullptr && journal->block_bytes() > 0;
  const WriteOptions options = with_defaults(given, continues ? journal->block_bytes() : kBufferedBlock);
  ThreadPool pool(options.num_threads);
  ImageWriter(storage, paths, files, options, journal).run(pool);
}

}  // namespace milepost
