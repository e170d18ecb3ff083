// How many files are hashed on few cores:
//
// 1. All threads draw from one list of files, the largest first.
// 2. A thread holds up to four open files, each with a block of its own. It fills every block and hashes all
// of them with
//    one call, which interleaves the streams: one stream leaves most of a core's SHA unit idle, waiting for
//    itself.
// 3. A file that ends frees its place for the next of the list. With few files each thread takes its share
// only, so that
//    every thread has some.
// 4. Blocks are small enough that the four stay in the core's cache between the read and the hash.
#include "engine/hash_files.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include "engine/report_progress.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/thread_pool.h"

namespace milepost {
namespace {

constexpr int64_t kBlockBytes = int64_t{64} << 10;
constexpr int64_t kMaxStreams = 4;  // that sha256_update_many interleaves

struct Job {
  Storage& storage;
  const std::string& folder;
  const std::vector<FileInfo>& files;
  Progress* progress;
  std::vector<HashedFile> done;  // by file; one thread touches each
  int64_t streams_a_thread = kMaxStreams;
  std::vector<size_t> order;

  std::mutex mutex;
  size_t next = 0;  // guarded by mutex

  std::optional<size_t> draw() {
    std::lock_guard lock(mutex);
    return next < order.size() ? std::optional(order[next++]) : std::nullopt;
  }
};

// One file on its way through a thread.
struct Stream {
  size_t file = 0;
  std::unique_ptr<ByteSource> source;  // null: the place is free
  int64_t position = 0, size = 0;
  std::optional<Sha256> hash;

  bool open(Job& job, size_t index) {
    try {
      source = job.storage.open_read(join_path(job.folder, job.files[index].name));
    } catch (...) {
      job.done[index].failure = std::current_exception();
      return false;
    }
    file = index;
    position = 0;
    size = source->size();
    hash.emplace();
    return true;
  }

  // The next bytes, in `block`; empty at the end and after a failure, which is kept.
  Bytes read(Job& job, MutableBytes block) {
    const int64_t length = std::min(size - position, static_cast<int64_t>(block.size()));
    const MutableBytes part = block.first(static_cast<size_t>(length));
    try {
      source->read_at(position, part);
    } catch (...) {
      job.done[file].failure = std::current_exception();
      size = position;
      return {};
    }
    position += length;
    return part;
  }

  void close(Job& job) {
    job.done[file].digest = hash->finish();
    source.reset();
  }
};

void work(Job& job) {
  const int64_t places = job.streams_a_thread;
  AlignedBuffer blocks(places * kBlockBytes);
  std::array<Stream, kMaxStreams> streams;
  for (;;) {
    std::array<Sha256*, kMaxStreams> hashes;
    std::array<Bytes, kMaxStreams> parts;
    size_t active = 0;
    int64_t moved = 0;
    for (int64_t place = 0; place < places; ++place) {
      Stream& stream = streams[static_cast<size_t>(place)];
      while (stream.source == nullptr) {
        const std::optional<size_t> index = job.draw();
        if (!index) break;
        if (stream.open(job, *index) && stream.size == 0) stream.close(job);
      }
      if (stream.source == nullptr) continue;
      const MutableBytes block = blocks.span().subspan(static_cast<size_t>(place * kBlockBytes), kBlockBytes);
      hashes[active] = &*stream.hash;
      parts[active] = stream.read(job, block);
      moved += static_cast<int64_t>(parts[active++].size());
    }
    if (active == 0) return;
    sha256_update_many({hashes.data(), active}, {parts.data(), active});
    for (int64_t place = 0; place < places; ++place) {
      Stream& stream = streams[static_cast<size_t>(place)];
      if (stream.source != nullptr && stream.position == stream.size) stream.close(job);
    }
    advance(job.progress, moved);
  }
}

}  // namespace

std::vector<HashedFile> hash_files(Storage& storage, const std::string& folder,
                                   const std::vector<FileInfo>& files, int num_threads, Progress* progress) {
  const auto count = static_cast<int64_t>(files.size());
  if (count == 0) return {};
  const int64_t wanted = num_threads > 0 ? num_threads : default_num_threads();
  const int64_t threads = std::min(wanted, count);
  Job job{storage, folder, files, progress, {}, kMaxStreams, {}, {}};
  job.done.resize(files.size());
  job.streams_a_thread = std::min(kMaxStreams, ceil_div(count, threads));
  job.order.resize(files.size());
  std::iota(job.order.begin(), job.order.end(), size_t{0});
  std::stable_sort(job.order.begin(), job.order.end(),
                   [&](size_t a, size_t b) { return files[a].size_bytes > files[b].size_bytes; });
  for (const FileInfo& file : files) expect_bytes(progress, file.size_bytes);

  ThreadPool pool(static_cast<int>(threads));
  pool.run(threads, [&](int64_t, int) { work(job); });
  return std::move(job.done);
}

}  // namespace milepost
