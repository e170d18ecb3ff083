// Reading packed text data: tokens a second.
//
//   loader_bench DATA TOKENIZER_FOLDER CACHE_FOLDER [MILLION_TOKENS]
//
// DATA: JSON lines or Parquet. Prints one line a case: the tokenizer alone on texts in memory, the loader
// that encodes on the way, the loader that fills a token cache, and the one that reads it; then how a
// consumer of a fixed rate, 80 % of what the loader does, waits behind a prefetch thread.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>

#include "milepost/base/error.h"
#include "milepost/data/prefetch.h"
#include "milepost/data/token_cache.h"

namespace milepost::data {
namespace {

using Clock = std::chrono::steady_clock;

// Of this process: on a busy machine the seconds of the clock say little.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Stopwatch {
 public:
  // Prints one line and returns tokens a second of the clock.
  double print(const std::string& name, int64_t tokens) const {
    const double wall = std::chrono::duration<double>(Clock::now() - start_).count();
    const double cpu = cpu_seconds() - cpu_start_;
    const auto count = static_cast<double>(tokens);
    fmt::print("{:<44} {:>8.3f} s {:>8.2f} M tokens/s {:>8.3f} CPU s {:>8.2f} M tokens a CPU s\n", name, wall,
               count / wall / 1e6, cpu, count / cpu / 1e6);
    return count / wall;
  }

 private:
  Clock::time_point start_ = Clock::now();
  double cpu_start_ = cpu_seconds();
};

struct Job {
  std::shared_ptr<Storage> storage = posix_storage();
  std::shared_ptr<const text::Tokenizer> tokenizer;
  LoaderOptions options;
  int64_t num_tokens = 0;

  std::unique_ptr<Loader> loader(const std::string& cache) const {
    LoaderOptions o = options;
    o.token_cache = cache;
    return Loader::open(storage, o, document_encoder(tokenizer));
  }
};

void bench_tokenizer(const Job& job) {
  Documents documents(job.storage, {job.options.dataset_path}, {});
  std::vector<std::string> texts;
  size_t size = 0;
  for (int64_t i = 0; i < documents.size() && size < size_t{64} << 20; ++i) {
    texts.emplace_back();
    documents.read(i, &texts.back());
    size += texts.back().size();
  }
  const DocumentEncoder encoder = document_encoder(job.tokenizer);
  std::vector<int32_t> ids;
  int64_t tokens = 0;
  const Stopwatch watch;
  for (size_t i = 0; tokens < job.num_tokens; i = (i + 1) % texts.size()) {
    ids.clear();
    encoder.encode(texts[i], &ids);
    tokens += std::ssize(ids);
  }
  watch.print("tokenizer alone", tokens);
}

double bench_loader(const Job& job, const std::string& name, const std::string& cache, int64_t num_tokens) {
  const std::unique_ptr<Loader> loader = job.loader(cache);
  const Stopwatch watch;
  while (loader->num_tokens() < num_tokens && loader->next()) continue;
  return watch.print(name, loader->num_tokens());
}

void bench_filling(const Job& job, const std::string& cache) {
  auto documents =
      std::make_unique<Documents>(job.storage, std::vector{job.options.dataset_path}, DocumentOptions{});
  TokenCache filling(job.storage, cache,
                     std::make_unique<EncodingSource>(std::move(documents), document_encoder(job.tokenizer),
                                                      OnBadRecord::kFail));
  const Stopwatch watch;
  filling.build();
  std::vector<int32_t> ids;
  int64_t tokens = 0;
  for (int64_t i = 0; i < filling.size(); ++i) {
    ids.clear();
    filling.append(i, &ids);
    tokens += std::ssize(ids);
  }
  watch.print("filling the token cache, reading it", tokens);
}

void bench_waits(const Job& job, const std::string& name, const std::string& cache, double rate) {
  Prefetcher ahead(job.loader(cache));
  const double batch_tokens = static_cast<double>(job.options.local_batch_size * job.options.seq_len);
  const std::chrono::duration<double> step(batch_tokens / rate);
  const int64_t num_batches = std::min<int64_t>(2000, static_cast<int64_t>(3 * rate / batch_tokens));
  ahead.next();
  Clock::time_point due = Clock::now();
  for (int64_t i = 1; i < num_batches; ++i) {
    due += std::chrono::duration_cast<Clock::duration>(step);
    std::this_thread::sleep_until(due);
    ahead.next();
  }
  const Prefetcher::Waits waits = ahead.waits();
  fmt::print("{:<44} {} waits in {} batches, {:.4f} s in all ({:.2f} M tokens/s asked for)\n", name,
             waits.count, num_batches, waits.seconds, rate / 1e6);
}

int run(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: loader_bench DATA TOKENIZER_FOLDER CACHE_FOLDER [MILLION_TOKENS]\n");
    return 2;
  }
  Job job;
  job.options.dataset = "text";
  job.options.dataset_path = argv[1];
  job.tokenizer = text::Tokenizer::load(argv[2]);
  const std::string cache = argv[3];
  job.num_tokens = (argc > 4 ? std::atoll(argv[4]) : 10) * 1'000'000;
  bench_tokenizer(job);
  const double encoding = bench_loader(job, "loader, encoding", "", job.num_tokens);
  bench_filling(job, cache);
  const double cached = bench_loader(job, "loader, token cache", cache, 10 * job.num_tokens);
  bench_waits(job, "consumer at 80 % of the loader, encoding", "", 0.8 * encoding);
  bench_waits(job, "consumer at 10 M tokens/s, token cache", cache, std::min(10e6, 0.8 * cached));
  return 0;
}

}  // namespace
}  // namespace milepost::data

int main(int argc, char** argv) {
  try {
    return milepost::data::run(argc, argv);
  } catch (const milepost::Error& error) {
    fmt::print(stderr, "loader_bench: {}\n", error.what());
    return 1;
  }
}
