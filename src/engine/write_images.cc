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
// 6. Where hashes are wanted, up to four files go together: a worker takes one block of each (a row), does 2
// to
//    4 for all of them, waits until the rows before have been hashed, and hashes its own, the files' streams
//    interleaved; then 5 for each. Otherwise a row is a block of one file.
// 7. With a journal, the block's CRC goes there afterwards. Where one is there from an interrupted run, the
//    block is read back instead of 2, and if it is as recorded, 4 and 5 are left out.
#include "engine/write_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>

#include "engine/block_order.h"
#include "engine/image_block.h"
#include "engine/row_hashes.h"
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
constexpr int64_t kPerWorkerExtra = 4 << 20;  // window and cast scratch of a PayloadFiller, rendered literals
constexpr int64_t kStreams = 4;               // that sha256_update_many interleaves

// Blocks that a worker holds at once.
int64_t lanes_of(const WriteOptions& options) { return options.hash_files ? kStreams : 1; }

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

// A block on its way.
struct Lane {
  FileState* state = nullptr;
  bool is_kept = false;  // it is in the file already
  ImageBlock block;
};

struct Worker {
  std::vector<Lane> lanes;
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

// Files that go together.
struct Group {
  size_t first = 0, count = 0;
  std::unique_ptr<RowHashes> hashes;  // null: not wanted
};

class ImageWriter {
 public:
  ImageWriter(Storage& storage, const std::vector<std::string>& paths, const std::vector<OutputFile>& files,
              const WriteOptions& options, Journal* journal)
      : storage_(storage), options_(options), journal_(journal), files_(files.size()) {
    int64_t total = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      files_[i].file = &files[i];
      files_[i].path = &paths[i];
    }
    block_bytes_ = block_size();
    if (journal_ != nullptr) journal_->set_block_bytes(block_bytes_);
    for (FileState& state : files_) {
      const int64_t size = state.file->image->size();
      state.num_blocks = state.blocks_left = std::max<int64_t>(1, ceil_div(size, block_bytes_));
      total += size;
    }
    order_ = std::make_unique<BlockOrder>(make_groups(), options.num_threads);
    if (options.progress != nullptr) options.progress->total_bytes += total;
  }

  // Returns the files' digests where they are wanted.
  std::vector<Sha256Digest> run(ThreadPool& pool) {
    workers_.resize(static_cast<size_t>(pool.num_threads()));
    pool.run(order_->size(), [this](int64_t position, int worker) {
      const BlockOrder::Place place = order_->at(position);
      Group& group = groups_[static_cast<size_t>(place.file)];
      try {
        write_row(group, place.block, workers_[static_cast<size_t>(worker)]);
      } catch (...) {
        fail_from(group, place.block);
        throw;
      }
    });
    std::vector<Sha256Digest> digests;
    for (const Group& group : groups_) {
      for (size_t i = 0; group.hashes != nullptr && i < group.count; ++i) {
        digests.push_back(group.hashes->finish(i));
      }
    }
    return digests;
  }

 private:
  // Returns how many rows each has.
  std::vector<int64_t> make_groups() {
    std::vector<int64_t> rows;
    const auto together = static_cast<size_t>(lanes_of(options_));
    for (size_t first = 0; first < files_.size(); first += together) {
      const size_t count = std::min(together, files_.size() - first);
      int64_t most = 0;
      for (size_t i = first; i < first + count; ++i) most = std::max(most, files_[i].num_blocks);
      rows.push_back(most);
      groups_.push_back({first, count, options_.hash_files ? std::make_unique<RowHashes>(count) : nullptr});
    }
    return rows;
  }

  int64_t block_size() {
    if (journal_ != nullptr && journal_->block_bytes() > 0) return journal_->block_bytes();
    open(files_[0]);  // to learn the alignment
    if (files_[0].out->alignment() == 1) return kBufferedBlock;
    const int workers = options_.num_threads;
    const int64_t share = (options_.max_memory_bytes / workers - kPerWorkerExtra) / lanes_of(options_);
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

  // What comes after `row` of the group is not written.
  void fail_from(Group& group, int64_t row) {
    for (size_t i = group.first; i < group.first + group.count; ++i) {
      FileState& state = files_[i];
      std::lock_guard lock(state.mutex);
      state.failed_block = std::min(state.failed_block, row);
      state.turn.notify_all();
    }
    if (group.hashes != nullptr) group.hashes->fail(row);
  }

  void write_row(Group& group, int64_t row, Worker& worker) {
    if (options_.progress != nullptr && options_.progress->cancel) {
      throw Error(ErrorCode::kIo, "cancelled; the destination is as it was");
    }
    if (worker.lanes.size() < group.count) worker.lanes.resize(group.count);
    const std::span<Lane> lanes = std::span(worker.lanes).first(group.count);
    for (size_t i = 0; i < group.count; ++i) {
      lanes[i].state = &files_[group.first + i];
      lanes[i].block.clear();
      if (row < lanes[i].state->num_blocks) make_block(row, lanes[i], worker);
    }
    if (group.hashes != nullptr) hash_row(*group.hashes, row, lanes);
    // Each row starts with another file, so that workers do not queue at one.
    for (size_t i = 0; i < group.count; ++i) {
      const Lane& lane = lanes[(static_cast<size_t>(row) + i) % group.count];
      if (row < lane.state->num_blocks) write_block(row, lane);
    }
  }

  void make_block(int64_t row, Lane& lane, Worker& worker) {
    FileState& state = *lane.state;
    const bool direct = open_file(state, row).alignment() > 1;
    const OutputFile& file = *state.file;
    lane.block.begin(row * block_bytes_, std::min(file.image->size(), (row + 1) * block_bytes_),
                     block_bytes_);
    lane.is_kept = is_written(row, lane);
    if (!lane.is_kept) {
      lane.block.gather(file, worker.filler_of(*file.source), direct,
                        file.image->wants_crc() || journal_ != nullptr);
    }
    if (file.image->wants_crc()) hand_in_checksums(row, lane.block, state);
    if (!lane.is_kept) lane.block.render_literals(*file.image, state.crcs);
  }

  static void hash_row(RowHashes& hashes, int64_t row, std::span<const Lane> lanes) {
    std::vector<std::span<const Bytes>> parts;
    for (const Lane& lane : lanes) parts.push_back(lane.block.parts());
    if (!hashes.add(row, parts)) throw Aborted{};
  }

  void write_block(int64_t row, const Lane& lane) {
    FileState& state = *lane.state;
    const int64_t length = lane.block.size();
    WritableFile& out = open_file(state, row);
    if (length > 0 && !lane.is_kept) {
      const uint32_t crc = journal_ != nullptr ? lane.block.crc() : 0;
      if (out.alignment() > 1) {
        const Bytes padded = lane.block.padded_to(out.alignment());
        out.write_at(lane.block.offset(), {&padded, 1});
      } else {
        out.write_at(lane.block.offset(), lane.block.parts());
      }
      if (journal_ != nullptr) journal_->add(index_of(state), row, crc, length);
    }
    finish_block(state, out);
    if (options_.progress != nullptr) options_.progress->done_bytes += length;
  }

  // Whether the block lies in the file as the journal says; it is then read from there.
  bool is_written(int64_t row, Lane& lane) {
    const FileState& state = *lane.state;
    if (state.written == nullptr || lane.block.size() == 0) return false;
    const std::optional<uint32_t> crc = journal_->recorded_crc(index_of(state), row);
    if (!crc || !lane.block.read_back(*state.file->image, *state.written, *crc)) return false;
    journal_->add_kept(lane.block.size());
    return true;
  }

  void hand_in_checksums(int64_t row, const ImageBlock& block, FileState& state) {
    std::unique_lock lock(state.mutex);
    state.turn.wait(lock, [&] { return state.failed_block < row || state.next_block == row; });
    if (state.failed_block < row) throw Aborted{};
    for (const ImageBlock::Piece& piece : block.pieces()) {
      uint32_t& crc = state.crcs[static_cast<size_t>(piece.payload)];
      crc = piece.begin == 0 ? piece.crc : crc32_combine(crc, piece.crc, piece.length);
    }
    ++state.next_block;
    state.turn.notify_all();
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
  std::vector<Group> groups_;
  std::vector<Worker> workers_;
  int64_t block_bytes_ = kBufferedBlock;
  std::unique_ptr<BlockOrder> order_;
};

WriteOptions with_defaults(WriteOptions options, int64_t block_bytes = kBufferedBlock) {
  // Hashing keeps a thread from writing; with more of them, some hash while others wait for the disk.
  if (options.num_threads <= 0) options.num_threads = default_num_threads() * (options.hash_files ? 2 : 1);
  // Every worker needs a block and its extras; fewer workers keep a small budget.
  const int64_t most = options.max_memory_bytes / (block_bytes * lanes_of(options) + kPerWorkerExtra);
  options.num_threads =
      static_cast<int>(std::clamp<int64_t>(options.num_threads, 1, std::max<int64_t>(most, 1)));
  return options;
}

}  // namespace

int64_t write_buffer_bytes(const WriteOptions& given) {
  const WriteOptions options = with_defaults(given);
  const int64_t per_worker = kDirectBlock * lanes_of(options) + kPerWorkerExtra;
  return std::min<int64_t>(options.max_memory_bytes, options.num_threads * per_worker);
}

std::vector<Sha256Digest> write_images(Storage& storage, const std::vector<std::string>& paths,
                                       const std::vector<OutputFile>& files, const WriteOptions& given,
                                       Journal* journal) {
  if (files.empty()) return {};
  const bool continues = journal != nullptr && journal->block_bytes() > 0;
  const WriteOptions options = with_defaults(given, continues ? journal->block_bytes() : kBufferedBlock);
  ThreadPool pool(options.num_threads);
  return ImageWriter(storage, paths, files, options, journal).run(pool);
}

}  // namespace milepost
