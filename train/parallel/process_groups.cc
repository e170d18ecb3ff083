#include "train/parallel/process_groups.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "train/parallel/store.h"

namespace milepost::train {
namespace {

// Dimensions that get a group; the others are made of these.
constexpr std::array<const char*, 10> kDimensions = {"pp", "dp_replicate", "dp_shard", "fsdp",  "cp",
                                                     "tp", "batch",        "loss",     "efsdp", "ep"};

CommunicationError failure(const std::string& operation, const std::string& cause) {
  // c10d's texts carry a stack trace after the first line.
  return CommunicationError(fmt::format("{} failed: {}", operation, cause.substr(0, cause.find('\n'))),
                            "another rank may have stopped; its own log says why");
}

class WorkPending final : public Pending {
 public:
  WorkPending(c10::intrusive_ptr<c10d::Work> work, std::string operation, std::vector<at::Tensor> tensors)
      : work_(std::move(work)), operation_(std::move(operation)), tensors_(std::move(tensors)) {}
  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& error) {
      throw failure(operation_, error.what());
    }
    tensors_.clear();
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::string operation_;
  std::vector<at::Tensor> tensors_;  // alive until the operation is done
};

// Bytes have no dtype: Gloo then takes every tensor.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view(-1).view(at::kByte); }

class BackendGroup final : public Group {
 public:
  BackendGroup(std::string name, std::vector<int64_t> ranks, int64_t index,
               c10::intrusive_ptr<c10d::Backend> backend)
      : Group(std::move(name), std::move(ranks), index), backend_(std::move(backend)) {}

  PendingPtr all_gather(const at::Tensor& receive, const at::Tensor& send) override {
    at::Tensor out = as_bytes(receive), in = as_bytes(send);
    return start("all-gather", {out, in}, [&] { return backend_->_allgather_base(out, in); });
  }

  PendingPtr all_to_all(const at::Tensor& receive, const std::vector<int64_t>& receive_sizes,
                        const at::Tensor& send, const std::vector<int64_t>& send_sizes) override {
    std::vector<int64_t> out_sizes = in_bytes(receive, receive_sizes), in_sizes = in_bytes(send, send_sizes);
    at::Tensor out = as_bytes(receive), in = as_bytes(send);
    return start("all-to-all", {out, in},
                 [&] { return backend_->alltoall_base(out, in, out_sizes, in_sizes); });
  }

  PendingPtr broadcast(const at::Tensor& tensor, int64_t root_index) override {
    std::vector<at::Tensor> tensors = {as_bytes(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root_index;
    return start("broadcast", tensors, [&] { return backend_->broadcast(tensors, options); });
  }

  void barrier() override {
    start("barrier", {}, [&] { return backend_->barrier(); })->wait();
  }

  void set_timeout(std::chrono::milliseconds timeout) override { backend_->setTimeout(timeout); }

 private:
  template <typename Call>
  PendingPtr start(const char* operation, std::vector<at::Tensor> tensors, const Call& call) {
    const std::string text = fmt::format("{} over {} ({} ranks)", operation, name(), size());
    try {
      return std::make_unique<WorkPending>(call(), text, std::move(tensors));
    } catch (const std::exception& error) {
      throw failure(text, error.what());
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

  c10::intrusive_ptr<c10d::Backend> backend_;
};

class TcpJobStore final : public JobStore {
 public:
  explicit TcpJobStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
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
c10::intrusive_ptr<c10d::Store> open_store(const DeviceMesh& mesh, std::chrono::milliseconds timeout) {
  const std::string host = environment("MASTER_ADDR");
  c10d::TCPStoreOptions options;
  options.port = port_number();
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  options.isServer = mesh.rank() == 0 && (agent == nullptr || std::string(agent) != "True");
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
  RealProcessGroups(const DeviceMesh& mesh, c10::intrusive_ptr<c10d::Store> store,
                    std::chrono::milliseconds timeout)
      : ProcessGroups(mesh), store_(std::move(store)), job_store_(store_), timeout_(timeout) {
    std::vector<int64_t> everyone(static_cast<size_t>(mesh.degrees().world_size()));
    for (size_t rank = 0; rank < everyone.size(); ++rank) everyone[rank] = static_cast<int64_t>(rank);
    groups_["world"] = make_group("world", everyone, mesh.rank());
    for (const char* name : kDimensions) {
      groups_[name] = make_group(name, mesh.group(name), mesh.coordinate(name));
    }
  }

  JobStore* store() override { return &job_store_; }

 private:
  std::unique_ptr<Group> make_group(const std::string& name, const std::vector<int64_t>& ranks,
                                    int64_t index) {
    if (ranks.size() == 1) return make_single_group(name, ranks[0]);
    // One backend for equal sets of ranks would tie their orders of operations together, so each has its own.
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
    try {
      options->devices.push_back(gloo_device());
      const auto prefix =
          c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", name, ranks[0]), store_);
      return std::make_unique<BackendGroup>(
          name, ranks, index,
          c10::make_intrusive<c10d::ProcessGroupGloo>(prefix, static_cast<int>(index),
                                                      static_cast<int>(ranks.size()), options));
    } catch (const std::exception& error) {
      throw failure(fmt::format("connecting {} ({} ranks)", name, ranks.size()), error.what());
    }
  }

  static std::shared_ptr<::gloo::transport::Device> gloo_device() {
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    return interface != nullptr && *interface != '\0'
               ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
               : c10d::ProcessGroupGloo::createDefaultDevice();
  }

  c10::intrusive_ptr<c10d::Store> store_;
  TcpJobStore job_store_;
  std::chrono::milliseconds timeout_;
};

class LocalProcessGroups final : public ProcessGroups {
 public:
  explicit LocalProcessGroups(const DeviceMesh& mesh) : ProcessGroups(mesh) {
    std::vector<int64_t> everyone(static_cast<size_t>(mesh.degrees().world_size()));
    for (size_t rank = 0; rank < everyone.size(); ++rank) everyone[rank] = static_cast<int64_t>(rank);
    groups_["world"] = make("world", everyone, mesh.rank());
    for (const char* name : kDimensions) groups_[name] = make(name, mesh.group(name), mesh.coordinate(name));
  }

 private:
  static std::unique_ptr<Group> make(const std::string& name, const std::vector<int64_t>& ranks,
                                     int64_t index) {
    return ranks.size() == 1 ? make_single_group(name, ranks[0]) : make_fake_group(name, ranks, index);
  }
};

}  // namespace

std::unique_ptr<ProcessGroups> ProcessGroups::join(const DeviceMesh& mesh,
                                                   std::chrono::milliseconds timeout) {
  if (mesh.degrees().world_size() == 1) return std::make_unique<LocalProcessGroups>(mesh);
  return join_through(mesh, open_store(mesh, timeout), timeout);
}

std::unique_ptr<ProcessGroups> join_through(const DeviceMesh& mesh, c10::intrusive_ptr<c10d::Store> store,
                                            std::chrono::milliseconds timeout) {
  return std::make_unique<RealProcessGroups>(mesh, std::move(store), timeout);
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
