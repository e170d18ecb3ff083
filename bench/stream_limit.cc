// The least that the conversion of a checkpoint must do: read every byte of the source, do the arithmetic,
// write the result and sync it. This is the limit in bench/models.py.
//
//   stream_limit copy|widen|narrow|fp8 FOLDER FILE... [--direct] [--threads N] [--block KIB] [--plain BYTES]
//
// copy keeps the bytes, widen makes float32 of bfloat16, narrow bfloat16 of float32, and fp8 bfloat16 of e4m3
// codes, with a scale for each 128 of them. --plain: so many of the input's bytes are copied instead, as a
// quantised model has tensors that are not quantised. Files are taken as one stream of elements, whatever
// they are: each thread works on an equal part of it, with one fixed buffer for either side, into a file of
// its own in FOLDER, which must exist. --direct writes around the page cache.
//
// Prints {"seconds", "cpu_seconds", "bytes_in", "bytes_out"}.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "milepost/base/aligned_buffer.h"
#include "milepost/tensor/block_scale.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kPage = AlignedBuffer::kAlignment, kScaleBlock = 128;

void check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

struct File {
  int fd;
  int64_t begin, end;  // in the stream
};

std::vector<File> open_all(const std::vector<std::string>& paths) {
  std::vector<File> files;
  int64_t at = 0;
  for (const std::string& path : paths) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    check(fd >= 0 && fstat(fd, &status) == 0, path.c_str());
    files.push_back({fd, at, at + status.st_size});
    at += status.st_size;
  }
  return files;
}

void read_stream(const std::vector<File>& files, int64_t at, std::byte* dst, int64_t count) {
  for (const File& file : files) {
    while (count > 0 && at >= file.begin && at < file.end) {
      const auto want = static_cast<size_t>(std::min(count, file.end - at));
      const ssize_t got = pread(file.fd, dst, want, at - file.begin);
      check(got > 0, "read");
      at += got;
      dst += got;
      count -= got;
    }
  }
}

struct Job {
  std::string mode, folder;
  bool direct = false;
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  int64_t block_bytes = 0;  // of the input
  int64_t plain_bytes = 0;
};

// Bytes of the result of `count` bytes.
int64_t result_bytes(const Job& job, int64_t count) {
  if (job.mode == "widen" || job.mode == "fp8") return count * 2;
  return job.mode == "narrow" ? count / 2 : count;
}

// Converts the part [at, end) of the stream; returns the bytes written.
int64_t convert_part(const Job& job, const std::vector<File>& files, int64_t at, int64_t end, int64_t part) {
  const std::string path = job.folder + "/part" + std::to_string(part);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (job.direct ? O_DIRECT : 0);
  const int fd = open(path.c_str(), flags, 0644);
  check(fd >= 0, path.c_str());
  const int64_t plain_end = at + job.plain_bytes / job.threads / kPage * kPage;
  AlignedBuffer source(job.block_bytes), result(result_bytes(job, job.block_bytes));
  std::vector<float> scales(static_cast<size_t>(job.block_bytes / kScaleBlock));
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 1e-4f * static_cast<float>(i % 64 + 1);

  int64_t written = 0;
  while (at < end) {
    const bool copies = job.mode == "copy" || at < plain_end;
    const int64_t count = std::min(job.block_bytes, (at < plain_end ? plain_end : end) - at);
    read_stream(files, at, source.data(), count);
    if (!copies && job.mode == "widen") {
      cast(result.data(), DType::kFloat32, source.data(), DType::kBFloat16, count / 2);
    } else if (!copies && job.mode == "narrow") {
      cast(result.data(), DType::kBFloat16, source.data(), DType::kFloat32, count / 4);
    } else if (!copies) {
      dequantise_row(result.data(), DType::kBFloat16, source.data(), DType::kFloat8E4M3FN, scales.data(),
                     kScaleBlock, 0, count);
    }
    const int64_t bytes = copies ? count : result_bytes(job, count);
    const int64_t padded = job.direct ? (bytes + kPage - 1) / kPage * kPage : bytes;
    const std::byte* const data = copies ? source.data() : result.data();
    check(pwrite(fd, data, static_cast<size_t>(padded), written) == padded, "write");
    written += bytes;
    at += count;
  }
  check(ftruncate(fd, written) == 0 && fsync(fd) == 0 && close(fd) == 0, "finish");
  return written;
}

double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void run(const Job& job, const std::vector<std::string>& paths) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<File> files = open_all(paths);
  const int64_t total = files.back().end;
  const int64_t share = total / job.threads / kPage * kPage;
  std::vector<int64_t> written(static_cast<size_t>(job.threads));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < job.threads; ++i) {
    const int64_t end = i + 1 < job.threads ? (i + 1) * share : total;
    threads.emplace_back(
        [&, i, end] { written[static_cast<size_t>(i)] = convert_part(job, files, i * share, end, i); });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t bytes_out = 0;
  for (int64_t bytes : written) bytes_out += bytes;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"bytes_in\": %lld, \"bytes_out\": %lld}\n",
              seconds.count(), cpu_seconds(), static_cast<long long>(total),
              static_cast<long long>(bytes_out));
}

int usage() {
  std::fputs(
      "stream_limit copy|widen|narrow|fp8 FOLDER FILE... [--direct] [--threads N] [--block KIB] "
      "[--plain BYTES]\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace milepost

int main(int argc, char** argv) {
  milepost::Job job;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--direct") {
      job.direct = true;
    } else if (word.starts_with("--")) {
      const int64_t number = i + 1 < argc ? std::atoll(argv[++i]) : -1;
      if (number < 0) return milepost::usage();
      if (word == "--threads") job.threads = std::max<int64_t>(1, number);
      if (word == "--block") job.block_bytes = number << 10;
      if (word == "--plain") job.plain_bytes = number;
    } else {
      words.emplace_back(word);
    }
  }
  if (words.size() < 3) return milepost::usage();
  job.mode = words[0];
  job.folder = words[1];
  if (job.block_bytes == 0) {  // what was fastest: within the cache, or large requests
    job.block_bytes = (job.direct ? int64_t{8} << 20 : int64_t{1} << 20);
    if (job.mode == "widen" || job.mode == "fp8") job.block_bytes /= 2;
  }
  job.block_bytes = (job.block_bytes + 8191) / 8192 * 8192;  // results of whole pages
  milepost::run(job, {words.begin() + 2, words.end()});
  return 0;
}
