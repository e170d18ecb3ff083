// `.metadata` at scale: seconds and memory of reading and writing.
//
//   metadata_bench [--chunks N] [--tensors N] [--rounds N]     a state of our own making, in memory
//   metadata_bench --file PATH [--rounds N]                    a file (torch's own: bench/metadata_scale.py)
//
// Prints the plain read of the bytes (the limit), the read into a catalog, the write, and what the catalog
// keeps and took at most, then one JSON line.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/storage/storage.h"

namespace milepost {
namespace {

struct Flags {
  int64_t chunks = 1'000'000;
  int64_t tensors = 1000;
  int rounds = 5;
  std::string file;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--chunks") flags.chunks = std::atoll(argv[i + 1]);
    if (name == "--tensors") flags.tensors = std::atoll(argv[i + 1]);
    if (name == "--rounds") flags.rounds = std::atoi(argv[i + 1]);
    if (name == "--file") flags.file = argv[i + 1];
  }
  return flags;
}

// Every tensor cut along dimension 0 into as many chunks as there are ranks.
Catalog sharded_state(int64_t num_chunks, int64_t num_tensors) {
  Catalog catalog;
  const int64_t num_ranks = std::max<int64_t>(1, num_chunks / num_tensors);
  const int64_t item_bytes = 16 * 7168 * 4 + 1216;
  for (int64_t r = 0; r < num_ranks; ++r) catalog.add_file(dcp::data_file_name(r, 0), -1);
  for (int64_t t = 0; t < num_tensors; ++t) {
    catalog.add_tensor(fmt::format("optimizer.state.layers.{}.moe.experts.w{}.exp_avg", t / 60, t % 60),
                       DType::kFloat32, Dims{16 * num_ranks, 7168});
    for (int64_t r = 0; r < num_ranks; ++r) {
      const Location location{t * item_bytes, item_bytes, static_cast<uint32_t>(r), Location::kTorchItem};
      catalog.add_chunk(Dims{16 * r, 0}, Dims{16, 7168}, location);
    }
  }
  return catalog;
}

class CountingSink final : public ByteSink {
 public:
  void append(Bytes bytes) override { count += static_cast<int64_t>(bytes.size()); }
  int64_t count = 0;
};

int64_t status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field)) return std::atoll(line.c_str() + field.size() + 1) * 1024;
  }
  return 0;
}

template <typename Work>
double seconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Timing {
  std::vector<double> rounds;
  double best() const { return *std::min_element(rounds.begin(), rounds.end()); }
  double median() const {
    std::vector<double> sorted = rounds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Growth of resident memory at its highest while `work` runs. Freed memory is given back first, so that none
// is reused unseen; files are read, never mapped, so all growth is anonymous.
template <typename Work>
int64_t peak_growth(Work work) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
  const int64_t before = status_bytes("VmRSS:");
  work();
  return status_bytes("VmHWM:") - before;
}

void run(const Flags& flags) {
  std::unique_ptr<ByteSource> source;
  if (!flags.file.empty()) {
    source = posix_storage()->open_read(flags.file);
  } else {
    VectorSink sink;
    dcp::write_metadata(sharded_state(flags.chunks, flags.tensors), {.checkpoint_id = "bench", .save_id = {}},
                        sink);
    source = std::make_unique<MemorySource>(std::move(sink.data), "bench");
  }

  Timing limit, read, write;
  int64_t peak = 0, written = 0, num_chunks = 0, index_bytes = 0;
  std::vector<std::byte> window(size_t{1} << 20);
  for (int round = 0; round < flags.rounds; ++round) {
    limit.rounds.push_back(seconds([&] {
      for (int64_t at = 0; at < source->size(); at += static_cast<int64_t>(window.size())) {
        const int64_t count = std::min<int64_t>(static_cast<int64_t>(window.size()), source->size() - at);
        source->read_at(at, MutableBytes(window).first(static_cast<size_t>(count)));
      }
    }));
    std::unique_ptr<dcp::Metadata> metadata;
    const auto read_once = [&] {
      read.rounds.push_back(
          seconds([&] { metadata = std::make_unique<dcp::Metadata>(dcp::read_metadata(*source)); }));
    };
    peak = std::max(peak, peak_growth(read_once));
    num_chunks = metadata->catalog.num_chunks();
    index_bytes = metadata->catalog.index_bytes();
    CountingSink sink;
    write.rounds.push_back(seconds(
        [&] { dcp::write_metadata(metadata->catalog, {.checkpoint_id = "bench", .save_id = {}}, sink); }));
    written = sink.count;
  }

  const auto per_chunk = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, num_chunks));
  };
  fmt::print("{} chunks, {} bytes read, {} bytes written ({:.1f} a chunk)\n", num_chunks, source->size(),
             written, per_chunk(written));
  fmt::print("plain read {:.3f} s (median {:.3f}), read {:.3f} s ({:.3f}), write {:.3f} s ({:.3f})\n",
             limit.best(), limit.median(), read.best(), read.median(), write.best(), write.median());
  fmt::print("index {:.1f} bytes a chunk, peak of the read {:.1f}\n", per_chunk(index_bytes),
             per_chunk(peak));
  fmt::print(
      "{{\"chunks\": {}, \"limit_s\": {:.4f}, \"read_s\": {:.4f}, \"write_s\": {:.4f}, "
      "\"file_bytes_per_chunk\": {:.1f}, \"index_bytes_per_chunk\": {:.1f}, \"peak_bytes_per_chunk\": "
      "{:.1f}}}\n",
      num_chunks, limit.best(), read.best(), write.best(), per_chunk(written), per_chunk(index_bytes),
      per_chunk(peak));
}

}  // namespace
}  // namespace milepost

int main(int argc, char** argv) {
  try {
    milepost::run(milepost::parse(argc, argv));
    return 0;
  } catch (const milepost::Error& error) {
    fmt::print(stderr, "metadata_bench: {}\n", error.what());
    return 1;
  }
}
