// The job's processes: rendezvous, and a group for every dimension of the mesh.
//
// A process finds the others through a c10d::TCPStore at MASTER_ADDR:MASTER_PORT (torchrun's environment:
// RANK, WORLD_SIZE, LOCAL_RANK), and talks to them by Gloo on CPUs and NCCL on GPUs, where libtorch has it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "train/parallel/collectives.h"
#include "train/parallel/device_mesh.h"

namespace milepost::train {

// A place where ranks leave small values for each other, apart from collectives: usable from any thread.
class JobStore {
 public:
  virtual ~JobStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key to be there. Throws CommunicationError after `timeout`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  virtual bool has(const std::string& key) = 0;
  // Adds to a counter and returns its new value.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // Whether rank 0's process serves it, so that it ends with that; with torchrun the launcher's agent does.
  virtual bool is_rank_0s() const = 0;
};

class ProcessGroups {
 public:
  // Joins the job and makes the groups of `mesh`'s dimensions for tensors of the host and of `device`, all
  // ranks together. One process: no store, no network. Throws CommunicationError (no rendezvous within
  // `timeout`, a port in use), ValueError (an environment variable that is not what it should be, a device
  // whose ranks this build cannot connect).
  static std::unique_ptr<ProcessGroups> join(const DeviceMesh& mesh, at::Device device,
                                             std::chrono::milliseconds timeout);
  // Groups that send nothing, for any mesh.
  static std::unique_ptr<ProcessGroups> fake(const DeviceMesh& mesh);

  virtual ~ProcessGroups() = default;
  const DeviceMesh& mesh() const { return mesh_; }
  // By the names that DeviceMesh::group knows, "world", and "checkpoint": all ranks again, for a thread that
  // saves beside the one that trains. Dimensions of one rank have a group of one.
  Group& group(const std::string& dimension);
  // Null with one process and for fake groups.
  virtual std::shared_ptr<JobStore> store() { return nullptr; }
  void set_timeout(std::chrono::milliseconds timeout);

 protected:
  explicit ProcessGroups(DeviceMesh mesh) : mesh_(std::move(mesh)) {}
  std::map<std::string, std::unique_ptr<Group>> groups_;

 private:
  DeviceMesh mesh_;
};

}  // namespace milepost::train
