#include "train/parallel/process_groups.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "train/parallel/backends.h"
#include "train/parallel/store.h"

namespace milepost::train {
namespace {

// Dimensions that get a group; the others are made of these.
constexpr std::array<const char*, 10> kDimensions = {"pp", "dp_replicate", "dp_shard", "fsdp",  "cp",
                                                     "tp", "batch",        "loss",     "efsdp", "ep"};

CommunicationError failure(const std::string& operation, const std::string& cause,
                           std::vector<int64_t> ranks = {}) {
  // c10d's texts carry a stack trace after the first line.
  return CommunicationError(fmt::format("{} failed: {}", operation, cause.substr(0, cause.find('\n'))),
                            "another rank may have stopped; its own log says why", std::move(ranks));
}

class WorkPending final : public Pending {
 public:
  WorkPending(c10::intrusive_ptr<c10d::Work> work, std::string operation, std::vector<int64_t> ranks,
              std::vector<at::Tensor> tensors)
      : work_(std::move(work)),
        operation_(std::move(operation)),
        ranks_(std::move(ranks)),
        tensors_(std::move(tensors)) {}
  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& error) {
      throw failure(operation_, error.what(), ranks_);
    }
    tensors_.clear();
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::string operation_;
  std::vector<int64_t> ranks_;
  std::vector<at::Tensor> tensors_;  // alive until the operation is done
};

// Bytes have no dtype: Gloo then takes every tensor.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view(-1).view(at::kByte); }

struct Backends {
  BackendPtr host, device;  // `device` is null where all tensors are the host's
  c10d::Backend& of(const at::Tensor& tensor) const {
    return tensor.is_cpu() || device == nullptr ? *host : *device;
  }
};

class BackendGroup final : public Group {
 public:
  BackendGroup(std::string name, std::vector<int64_t> ranks, int64_t index, Backends backends)
      : Group(std::move(name), std::move(ranks), index), backends_(std::move(backends)) {}

  PendingPtr all_gather(const at::Tensor& receive, const at::Tensor& send) override {
    at::Tensor out = as_bytes(receive), in = as_bytes(send);
    return start("all-gather", {out, in}, [&] { return backends_.of(in)._allgather_base(out, in); });
  }

  PendingPtr all_to_all(const at::Tensor& receive, const std::vector<int64_t>& receive_sizes,
                        const at::Tensor& send, const std::vector<int64_t>& send_sizes) override {
    std::vector<int64_t> out_sizes = in_bytes(receive, receive_sizes), in_sizes = in_bytes(send, send_sizes);
    at::Tensor out = as_bytes(receive), in = as_bytes(send);
    return start("all-to-all", {out, in},
                 [&] { return backends_.of(in).alltoall_base(out, in, out_sizes, in_sizes); });
  }

  PendingPtr broadcast(const at::Tensor& tensor, int64_t root_index) override {
    std::vector<at::Tensor> tensors = {as_bytes(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root_index;
    return start("broadcast", tensors, [&] { return backends_.of(tensor).broadcast(tensors, options); });
  }

  void barrier() override {
    start("barrier", {}, [&] { return backends_.host->barrier(); })->wait();
  }

  void set_timeout(std::chrono::milliseconds timeout) override {
    backends_.host->setTimeout(timeout);
    if (backends_.device != nullptr) backends_.device->setTimeout(timeout);
  }

 private:
  template <typename Call>
  PendingPtr start(const char* operation, std::vector<at::Tensor> tensors, const Call& call) {
    const std::string text = fmt::format("{} over {} ({} ranks)", operation, name(), size());
    try {
      return std::make_unique<WorkPending>(call(), text, ranks(), std::move(tensors));
    } catch (const std::exception& error) {
      throw failure(text, error.what(), ranks());
    }
  }

  static std::vector<int64_t> in_bytes(const at::Tensor& tensor, const std::vector<int64_t>& rows) {
    const int64_t row = tensor.dim() == 0 || tensor.size(0) == 0
                            ? 0
                            : tensor.numel() / tensor.size(0) * static_cast<int64_t>(tensor.element_size());
    std::vector<int64_t> sizes;
    for (const int64_t count : rows) sizes.push_back(count * row);
    return sizes;
  }

  Backends backends_;
};

class TcpJobStore final : public JobStore {
 public:
  TcpJobStore(c10::intrusive_ptr<c10d::Store> store, bool is_rank_0s)
      : store_(std::move(store)), is_rank_0s_(is_rank_0s) {}
  void set(const std::string& key, const std::string& value) override {
    guarded("set " + key, [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::string text;
    guarded("wait for " + key, [&] {
      store_->wait({key}, timeout);
      const std::vector<uint8_t> value = store_->get(key);
      text.assign(value.begin(), value.end());
    });
    return text;
  }
  bool has(const std::string& key) override {
    bool is_there = false;
    guarded("look for " + key, [&] { is_there = store_->check({key}); });
    return is_there;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    int64_t value = 0;
    guarded("add to " + key, [&] { value = store_->add(key, amount); });
    return value;
  }
  bool is_rank_0s() const override { return is_rank_0s_; }

 private:
  template <typename Call>
  static void guarded(const std::string& operation, const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      throw failure("the job's store: " + operation, error.what());
    }
  }
  c10::intrusive_ptr<c10d::Store> store_;
  bool is_rank_0s_;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    throw ValueError(fmt::format("the environment has no {}", name),
                     "start several processes with torchrun, as run_train.sh does");
  }
  return value;
}

uint16_t port_number() {
  const std::string text = environment("MASTER_PORT");
  char* end = nullptr;
  const long port = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || port < 1 || port > 65535) {
    throw ValueError(fmt::format("MASTER_PORT '{}' is not a port (1 to 65535)", text));
  }
  return static_cast<uint16_t>(port);
}

// TCPStore waits without end for a server that accepts and says nothing, such as another program that has the
// port. The thread is left to itself then; the process is about to end.
c10::intrusive_ptr<c10d::TCPStore> connect(const std::string& host, const c10d::TCPStoreOptions& options) {
  std::packaged_task<c10::intrusive_ptr<c10d::TCPStore>()> connecting(
      [host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  auto store = connecting.get_future();
  std::thread(std::move(connecting)).detach();
  const auto slack = std::chrono::seconds(2);  // TCPStore's own error says more
  if (store.wait_for(options.timeout + slack) != std::future_status::ready) {
    throw std::runtime_error("no answer: another program may have the port");
  }
  return store.get();
}

// With torchrun the agent serves the store; without, rank 0 does.
bool is_rank_0s_store() {
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return agent == nullptr || std::string(agent) != "True";
}

c10::intrusive_ptr<c10d::Store> open_store(const DeviceMesh& mesh, std::chrono::milliseconds timeout) {
  const std::string host = environment("MASTER_ADDR");
  c10d::TCPStoreOptions options;
  options.port = port_number();
  options.isServer = mesh.rank() == 0 && is_rank_0s_store();
  options.numWorkers = static_cast<size_t>(mesh.degrees().world_size());
  options.timeout = timeout;
  options.waitWorkers = false;
  try {
    auto store = connect(host, options);
    const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("milepost/{}", attempt == nullptr ? "0" : attempt), store);
  } catch (const std::exception& error) {
    throw failure(fmt::format("rendezvous at {}:{}", host, options.port), error.what());
  }
}

class RealProcessGroups final : public ProcessGroups {
 public:
  RealProcessGroups(const DeviceMesh& mesh, c10::intrusive_ptr<c10d::Store> store, at::Device device,
                    std::chrono::milliseconds timeout)
      : ProcessGroups(mesh),
        store_(std::move(store)),
        job_store_(std::make_shared<TcpJobStore>(store_, is_rank_0s_store())),
        uses_nccl_(device.is_cuda()),
        timeout_(timeout) {
    std::vector<int64_t> everyone(static_cast<size_t>(mesh.degrees().world_size()));
    for (size_t rank = 0; rank < everyone.size(); ++rank) everyone[rank] = static_cast<int64_t>(rank);
    groups_["world"] = make_group("world", everyone, mesh.rank());
    for (const char* name : kDimensions) {
      groups_[name] = make_group(name, mesh.group(name), mesh.coordinate(name));
    }
    // With connections of its own, since another thread issues its operations.
    groups_["checkpoint"] =
        everyone.size() == 1 ? make_single_group("checkpoint", mesh.rank())
                             : std::make_unique<BackendGroup>("checkpoint", everyone, mesh.rank(),
                                                              connect("checkpoint", everyone, mesh.rank()));
  }

  std::shared_ptr<JobStore> store() override { return job_store_; }

 private:
  std::unique_ptr<Group> make_group(const std::string& name, const std::vector<int64_t>& ranks,
                                    int64_t index) {
    if (ranks.size() == 1) return make_single_group(name, ranks[0]);
    auto found = connected_.find(ranks);
    if (found == connected_.end()) found = connected_.emplace(ranks, connect(name, ranks, index)).first;
    return std::make_unique<BackendGroup>(name, ranks, index, found->second);
  }

  Backends connect(const std::string& name, const std::vector<int64_t>& ranks, int64_t index) {
    const auto prefix = [&](const char* kind) {
      return c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}/{}", kind, name, ranks[0]), store_);
    };
    const auto size = static_cast<int64_t>(ranks.size());
    try {
      return {connect_gloo(prefix("gloo"), index, size, timeout_),
              uses_nccl_ ? connect_nccl(prefix("nccl"), index, size, timeout_) : BackendPtr()};
    } catch (const std::exception& error) {
      throw failure(fmt::format("connecting {} ({} ranks)", name, ranks.size()), error.what(), ranks);
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<JobStore> job_store_;
  bool uses_nccl_;
  std::chrono::milliseconds timeout_;
  // Equal ranks share their connections: one thread issues all operations, in the same order on all ranks.
  std::map<std::vector<int64_t>, Backends> connected_;
};

class LocalProcessGroups final : public ProcessGroups {
 public:
  explicit LocalProcessGroups(const DeviceMesh& mesh) : ProcessGroups(mesh) {
    std::vector<int64_t> everyone(static_cast<size_t>(mesh.degrees().world_size()));
    for (size_t rank = 0; rank < everyone.size(); ++rank) everyone[rank] = static_cast<int64_t>(rank);
    for (const char* name : {"world", "checkpoint"}) groups_[name] = make(name, everyone, mesh.rank());
    for (const char* name : kDimensions) groups_[name] = make(name, mesh.group(name), mesh.coordinate(name));
  }

 private:
  static std::unique_ptr<Group> make(const std::string& name, const std::vector<int64_t>& ranks,
                                     int64_t index) {
    return ranks.size() == 1 ? make_single_group(name, ranks[0]) : make_fake_group(name, ranks, index);
  }
};

}  // namespace

std::unique_ptr<ProcessGroups> ProcessGroups::join(const DeviceMesh& mesh, at::Device device,
                                                   std::chrono::milliseconds timeout) {
  if (mesh.degrees().world_size() == 1) return std::make_unique<LocalProcessGroups>(mesh);
  if (device.is_cuda() && !has_nccl()) {
    throw ValueError(
        fmt::format("{} ranks on {}: this build has no NCCL", mesh.degrees().world_size(), device.str()),
        "build with a torch wheel for CUDA in .venv and NCCL's header, or use --device cpu");
  }
  if (!device.is_cuda() && !device.is_cpu()) {
    throw ValueError(fmt::format("{} ranks on {}: ranks talk on cpu and on cuda only",
                                 mesh.degrees().world_size(), device.str()),
                     "use --device cpu, or one process");
  }
  return std::make_unique<RealProcessGroups>(mesh, open_store(mesh, timeout), device, timeout);
}

std::unique_ptr<ProcessGroups> join_through(const DeviceMesh& mesh, c10::intrusive_ptr<c10d::Store> store,
                                            std::chrono::milliseconds timeout) {
  return std::make_unique<RealProcessGroups>(mesh, std::move(store), at::kCPU, timeout);
}

std::unique_ptr<ProcessGroups> ProcessGroups::fake(const DeviceMesh& mesh) {
  return std::make_unique<LocalProcessGroups>(mesh);
}

Group& ProcessGroups::group(const std::string& dimension) {
  const auto found = groups_.find(dimension);
  if (found == groups_.end()) throw ValueError(fmt::format("the mesh has no dimension '{}'", dimension));
  return *found->second;
}

void ProcessGroups::set_timeout(std::chrono::milliseconds timeout) {
  for (const auto& [name, group] : groups_) group->set_timeout(timeout);
}

}  // namespace milepost::train
