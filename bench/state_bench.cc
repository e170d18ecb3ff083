// A training state in memory, saved and loaded on request, with the plainest programs that move the same
// bytes beside it.
//
// Reads commands from standard input, one a line, and answers each with one line of JSON, so that
// bench/run.py can interleave them with the peers in one run:
//
//   build BYTES                      a state of about that many bytes (bench/statedict.py's shapes): bf16
//                                    weight, three fp32 states and a step a parameter, six numbers
//   save DIR RANKS FILES sync|nosync [hash]
//                                    Milepost's four-step save of the state, sharded on dim 0; FILES a rank,
//                                    0: default; hash: with a manifest
//   write DIR FILES buffered|direct sync|nosync
//                                    the limit: the same tensors written one after another into FILES
//                                    files, a thread each
//   load DIR RANKS                   Milepost's load into the same memory, as RANKS ranks would ask for it
//   read DIR                         the limit: reads what `write` left into the same memory, a thread a file
//   safetensors-save FILE, safetensors-load FILE
//                                    the bf16 weights alone
//   fill VALUE | checksum | drop DIR | remove DIR
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "milepost/base/aligned_buffer.h"
#include "milepost/base/error.h"
#include "milepost/engine/convert.h"
#include "milepost/engine/load.h"
#include "milepost/engine/save.h"

namespace milepost {
namespace {

struct Parameter {
  std::string name;
  Dims shape;
};

// The shapes of bench/statedict.py: a DeepSeek-V3-like model with one dense layer.
std::vector<Parameter> parameters(int64_t target_bytes) {
  int64_t dim = 128, vocab = 4096, heads = 4, hidden = 64, experts = 8;
  if (target_bytes >= int64_t{1} << 30) {
    dim = 512, vocab = 32768, heads = 8, hidden = 256, experts = 16;
  } else if (target_bytes >= int64_t{256} << 20) {
    dim = 256, vocab = 16384, heads = 4, hidden = 128, experts = 16;
  }
  std::vector<Parameter> out = {
      {"tok_embeddings.weight", {vocab, dim}}, {"norm.weight", {dim}}, {"lm_head.weight", {vocab, dim}}};
  const auto layer = [&](int64_t i) {
    const std::string p = "layers." + std::to_string(i) + ".";
    std::vector<Parameter> l = {{p + "attention.wq.weight", {heads * 192, dim}},
                                {p + "attention.wkv_a.weight", {576, dim}},
                                {p + "attention.kv_norm.weight", {512}},
                                {p + "attention.wkv_b.weight", {heads * 256, 512}},
                                {p + "attention.wo.weight", {dim, heads * 128}},
                                {p + "attention_norm.weight", {dim}},
                                {p + "ffn_norm.weight", {dim}}};
    if (i == 0) {
      l.push_back({p + "feed_forward.w1.weight", {4 * dim, dim}});
      l.push_back({p + "feed_forward.w2.weight", {dim, 4 * dim}});
      l.push_back({p + "feed_forward.w3.weight", {4 * dim, dim}});
      return l;
    }
    const std::string e = p + "moe.routed_experts.inner_experts.";
    l.push_back({e + "w1_EFD", {experts, hidden, dim}});
    l.push_back({e + "w2_EDF", {experts, dim, hidden}});
    l.push_back({e + "w3_EFD", {experts, hidden, dim}});
    l.push_back({p + "moe.router.gate.weight", {experts, dim}});
    l.push_back({p + "moe.expert_bias_E", {experts}});
    l.push_back({p + "moe.shared_experts.w1.weight", {hidden, dim}});
    l.push_back({p + "moe.shared_experts.w2.weight", {dim, hidden}});
    l.push_back({p + "moe.shared_experts.w3.weight", {hidden, dim}});
    return l;
  };
  const auto elements = [](const std::vector<Parameter>& list) {
    int64_t sum = 0;
    for (const Parameter& parameter : list) sum += num_elements(parameter.shape);
    return sum;
  };
  const auto add = [&out](const std::vector<Parameter>& list) {
    out.insert(out.end(), list.begin(), list.end());
  };
  add(layer(0));
  const double layers =
      static_cast<double>(target_bytes / 14 - elements(out)) / static_cast<double>(elements(layer(1)));
  const auto num_moe = std::max<int64_t>(2, static_cast<int64_t>(layers + 0.5));
  for (int64_t i = 1; i <= num_moe; ++i) add(layer(i));
  return out;
}

struct Tensor {
  std::string name;
  DType dtype;
  Dims shape;
  std::unique_ptr<std::byte[]> data;
  int64_t bytes;
};

class State {
 public:
  explicit State(int64_t target_bytes) {
    for (const Parameter& parameter : parameters(target_bytes)) {
      add(parameter.name, DType::kBFloat16, parameter.shape);
      const std::string prefix = "optimizer.state." + parameter.name;
      add(prefix + ".step", DType::kFloat32, {});
      for (const char* kind : {".master", ".exp_avg", ".exp_avg_sq"})
        add(prefix + kind, DType::kFloat32, parameter.shape);
      add_numbers("optimizer.param_groups." + parameter.name);
    }
    object_names_.push_back("lr_scheduler.last_epoch");
    object_values_.push_back(builder_.integer(1000));
    document_ = std::make_shared<pickle::Document>(builder_.finish(builder_.list(object_values_)));
    fill(7);
  }

  int64_t bytes() const { return bytes_; }
  size_t entries() const { return tensors_.size() + object_names_.size(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }

  void fill(uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15ULL;
    for (Tensor& tensor : tensors_) {
      if (seed == 0) {
        std::memset(tensor.data.get(), 0, static_cast<size_t>(tensor.bytes));
        continue;
      }
      for (int64_t i = 0; i + 8 <= tensor.bytes; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        std::memcpy(tensor.data.get() + i, &x, 8);
      }
    }
  }

  uint64_t checksum() const {
    uint64_t sum = 0;
    for (const Tensor& tensor : tensors_) {
      for (int64_t i = 0; i + 8 <= tensor.bytes; i += 8) {
        uint64_t word;
        std::memcpy(&word, tensor.data.get() + i, 8);
        sum = sum * 1000003 + word;
      }
    }
    return sum;
  }

  std::shared_ptr<const Checkpoint> checkpoint(bool weights_only) const {
    Catalog catalog;
    std::vector<std::shared_ptr<const ByteSource>> files;
    for (const Tensor& tensor : tensors_) {
      if (weights_only && tensor.dtype != DType::kBFloat16) continue;
      const uint32_t file = catalog.add_file(tensor.name, tensor.bytes);
      catalog.add_tensor(tensor.name, tensor.dtype, tensor.shape);
      catalog.add_chunk(Dims(tensor.shape.size(), 0), tensor.shape,
                        {0, tensor.bytes, file, Location::kRowMajor});
      files.push_back(std::make_shared<MemorySource>(
          Bytes(tensor.data.get(), static_cast<size_t>(tensor.bytes)), tensor.name));
    }
    std::vector<ObjectValue> objects;
    if (!weights_only) {
      for (size_t i = 0; i < object_names_.size(); ++i) {
        catalog.add_object(object_names_[i]);
        objects.push_back({document_, &document_->root().item(static_cast<int64_t>(i)), nullptr});
      }
    }
    return Checkpoint::in_memory(std::move(catalog), std::move(files), std::move(objects));
  }

  Box shard(const Tensor& tensor, int64_t rank, int64_t num_ranks) const {
    Box box = Box::whole(tensor.shape);
    if (!tensor.shape.empty())
      std::tie(box.offsets[0], box.sizes[0]) = chunk_range(tensor.shape[0], num_ranks, rank);
    return box;
  }

  void save(const std::string& path, int64_t num_ranks, int files, bool sync, bool hash) const {
    std::vector<LocalPlan> plans;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      LocalPlan plan;
      for (const Tensor& tensor : tensors_)
        plan.add_tensor(tensor.name, tensor.dtype, tensor.shape, shard(tensor, rank, num_ranks));
      for (const std::string& name : object_names_) plan.add_object(name);
      plans.push_back(std::move(plan));
    }
    WriteOptions options;
    options.files_per_rank = files;
    options.sync = sync;
    options.hash_files = hash;
    save_dcp(resolve_location(path), plans, {checkpoint(false)}, options, true);
  }

  LoadReport load(const std::string& path, int64_t num_ranks, bool weights_only) const {
    std::vector<LoadTarget> targets;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      for (const Tensor& tensor : tensors_) {
        if (weights_only && tensor.dtype != DType::kBFloat16) continue;
        if (rank > 0 && tensor.shape.empty()) continue;
        const Box box = shard(tensor, rank, num_ranks);
        const int64_t row = tensor.shape.empty() ? 0 : tensor.bytes / tensor.shape[0];
        targets.push_back({tensor.name,
                           tensor.dtype,
                           tensor.shape,
                           box,
                           tensor.data.get() + (tensor.shape.empty() ? 0 : box.offsets[0] * row),
                           {}});
      }
    }
    return milepost::load(Checkpoint::open(path), targets);
  }

 private:
  void add(std::string name, DType dtype, Dims shape) {
    const int64_t bytes = num_elements(shape) * dtype_size(dtype);
    tensors_.push_back({std::move(name), dtype, std::move(shape),
                        std::make_unique<std::byte[]>(static_cast<size_t>(bytes)), bytes});
    bytes_ += bytes;
  }

  void add_numbers(const std::string& prefix) {
    const pickle::Value* betas[] = {builder_.floating(0.9), builder_.floating(0.95)};
    const std::pair<const char*, const pickle::Value*> numbers[] = {
        {".lr", builder_.floating(2.2e-4)},         {".betas", builder_.tuple(betas)},
        {".eps", builder_.floating(1e-8)},          {".weight_decay", builder_.floating(0.1)},
        {".initial_lr", builder_.floating(2.2e-4)}, {".amsgrad", builder_.boolean(false)}};
    for (const auto& [name, value] : numbers) {
      object_names_.push_back(prefix + name);
      object_values_.push_back(value);
    }
  }

  std::vector<Tensor> tensors_;
  std::vector<std::string> object_names_;
  std::vector<const pickle::Value*> object_values_;
  pickle::Builder builder_;
  std::shared_ptr<const pickle::Document> document_;
  int64_t bytes_ = 0;
};

// ---- the plainest programs ----

constexpr int64_t kBlock = 16 << 20;

void check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

// Tensors dealt to `count` files so that their sizes are about equal.
std::vector<std::vector<const Tensor*>> deal(const State& state, size_t count, bool weights_only) {
  std::vector<std::vector<const Tensor*>> out(count);
  int64_t done = 0;
  const int64_t total = weights_only ? state.bytes() / 7 : state.bytes();
  for (const Tensor& tensor : state.tensors()) {
    if (weights_only && tensor.dtype != DType::kBFloat16) continue;
    const int64_t share = done * static_cast<int64_t>(count) / total;
    const auto file = std::min<size_t>(count - 1, static_cast<size_t>(share));
    out[file].push_back(&tensor);
    done += tensor.bytes;
  }
  return out;
}

template <typename Transfer>
void vectored(int fd, const std::vector<const Tensor*>& tensors, Transfer transfer) {
  std::vector<iovec> parts;
  int64_t size = 0, offset = 0;
  const auto flush = [&] {
    size_t first = 0;
    while (first < parts.size()) {
      ssize_t moved = transfer(fd, parts.data() + first, static_cast<int>(parts.size() - first), offset);
      check(moved > 0, "limit transfer");
      offset += moved;
      while (first < parts.size() && moved >= static_cast<ssize_t>(parts[first].iov_len))
        moved -= static_cast<ssize_t>(parts[first++].iov_len);
      if (moved > 0) {
        parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + moved;
        parts[first].iov_len -= static_cast<size_t>(moved);
      }
    }
    parts.clear();
    size = 0;
  };
  for (const Tensor* tensor : tensors) {
    if (tensor->bytes == 0) continue;
    if (size + tensor->bytes > kBlock || parts.size() >= 256) flush();
    parts.push_back({tensor->data.get(), static_cast<size_t>(tensor->bytes)});
    size += tensor->bytes;
  }
  flush();
}

void write_buffered(const std::string& path, const std::vector<const Tensor*>& tensors, bool sync) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(fd >= 0, path.c_str());
  vectored(fd, tensors, [](int f, iovec* v, int n, int64_t at) { return pwritev(f, v, n, at); });
  if (sync) check(fsync(fd) == 0, "fsync");
  close(fd);
}

void write_direct(const std::string& path, const std::vector<const Tensor*>& tensors, bool sync) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0644);
  check(fd >= 0, path.c_str());
  static thread_local AlignedBuffer buffer(kBlock);
  int64_t used = 0, total = 0, at = 0;
  const auto flush = [&](int64_t bytes) {
    check(pwrite(fd, buffer.data(), static_cast<size_t>(bytes), at) == bytes, "limit write");
    at += bytes;
    used = 0;
  };
  for (const Tensor* tensor : tensors) {
    for (int64_t done = 0; done < tensor->bytes;) {
      const int64_t count = std::min(tensor->bytes - done, kBlock - used);
      std::memcpy(buffer.data() + used, tensor->data.get() + done, static_cast<size_t>(count));
      used += count;
      done += count;
      if (used == kBlock) flush(kBlock);
    }
    total += tensor->bytes;
  }
  if (used > 0) flush((used + 4095) / 4096 * 4096);
  check(ftruncate(fd, total) == 0, "ftruncate");
  if (sync) check(fsync(fd) == 0, "fsync");
  close(fd);
}

void read_plain(const std::string& path, const std::vector<const Tensor*>& tensors) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(fd >= 0, path.c_str());
  vectored(fd, tensors, [](int f, iovec* v, int n, int64_t at) { return preadv(f, v, n, at); });
  close(fd);
}

template <typename Job>
void in_threads(const std::vector<std::vector<const Tensor*>>& shares, Job job) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < shares.size(); ++i) threads.emplace_back([&, i] { job(i, shares[i]); });
  for (std::thread& thread : threads) thread.join();
}

void drop_cache(const std::string& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    check(fd >= 0, entry.path().c_str());
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs one command; returns further JSON fields.
std::string run(std::unique_ptr<State>& state, std::istringstream& words) {
  std::string command, path, mode, sync;
  int64_t number = 0;
  int files = 0;
  words >> command;
  if (command == "build") {
    words >> number;
    state = std::make_unique<State>(number);
    return ", \"bytes\": " + std::to_string(state->bytes()) +
           ", \"entries\": " + std::to_string(state->entries());
  }
  if (command == "save") {
    words >> path >> number >> files >> sync >> mode;
    state->save(path, number, files, sync == "sync", mode == "hash");
  } else if (command == "write" || command == "write-weights") {
    words >> path >> files >> mode >> sync;
    std::filesystem::create_directories(path);
    in_threads(deal(*state, static_cast<size_t>(files), command == "write-weights"),
               [&](size_t i, const std::vector<const Tensor*>& share) {
                 const std::string name = path + "/" + std::to_string(i);
                 mode == "direct" ? write_direct(name, share, sync == "sync")
                                  : write_buffered(name, share, sync == "sync");
               });
  } else if (command == "load") {
    words >> path >> number;
    const LoadReport report = state->load(path, number, false);
    return ", \"wanted\": " + std::to_string(report.bytes_wanted) +
           ", \"read\": " + std::to_string(report.bytes_read);
  } else if (command == "read" || command == "read-weights") {
    words >> path;
    size_t count = 0;
    while (std::filesystem::exists(path + "/" + std::to_string(count))) ++count;
    in_threads(deal(*state, count, command == "read-weights"),
               [&](size_t i, const std::vector<const Tensor*>& share) {
                 read_plain(path + "/" + std::to_string(i), share);
               });
  } else if (command == "safetensors-save") {
    words >> path;
    ConvertOptions options;
    options.to = CheckpointFormat::kSafetensors;
    options.shard_size_bytes = int64_t{1} << 50;
    options.sync = false;
    options.overwrite = true;
    convert(state->checkpoint(true), path, options);
  } else if (command == "safetensors-load") {
    words >> path;
    state->load(path, 1, true);
  } else if (command == "fill") {
    words >> number;
    state->fill(static_cast<uint64_t>(number));
  } else if (command == "checksum") {
    return ", \"checksum\": " + std::to_string(state->checksum());
  } else if (command == "drop") {
    words >> path;
    drop_cache(path);
  } else if (command == "remove") {
    words >> path;
    std::filesystem::remove_all(path);
  } else {
    return ", \"error\": \"unknown command\"";
  }
  return "";
}

}  // namespace
}  // namespace milepost

int main() {
  std::unique_ptr<milepost::State> state;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    const double cpu = milepost::cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    std::string fields;
    try {
      fields = milepost::run(state, words);
    } catch (const milepost::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      fields = ", \"error\": \"failed\"";
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f%s}\n", seconds, milepost::cpu_seconds() - cpu,
                fields.c_str());
    std::fflush(stdout);
  }
  return 0;
}
