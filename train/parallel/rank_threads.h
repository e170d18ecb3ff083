// Ranks as threads of one process, for tests: real process groups over an in-memory store.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "train/parallel/store.h"

namespace milepost::train {

// Runs `body` on every rank of the mesh and waits for all. Rethrows the first rank's exception.
inline void run_ranks(const Degrees& degrees, const std::function<void(ProcessGroups&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> failures(static_cast<size_t>(degrees.world_size()));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < degrees.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto groups = join_through(DeviceMesh(degrees, rank), store, std::chrono::seconds(60));
        body(*groups);
        groups->group("world").barrier();
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace milepost::train
