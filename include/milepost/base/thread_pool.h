// ThreadPool: a fixed set of workers that run the tasks of one parallel loop at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace milepost {

// Threads: `run` may be called from one thread at a time and not from inside a task. The pool owns its
// workers and joins them when destroyed.
class ThreadPool {
 public:
  // `num_threads` >= 1 counts the caller, who works too: a pool of 1 starts no thread. Where the system
  // refuses more threads, the pool has fewer; num_threads() says how many.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(i, worker) once for every i in [0, count), each worker in [0, num_threads()) running one task
  // at a time; tasks start in order of i. Returns when all are done. If tasks throw, tasks not yet started
  // are skipped and the exception of the lowest failed i is rethrown, so that the same input fails the same
  // way on any number of threads (a task below a failed one has always been started before it, and is waited
  // for).
  void run(int64_t count, const std::function<void(int64_t index, int worker)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The number of threads used where the caller has no wish: the cores this process may run on, at most 16.
int default_num_threads();

}  // namespace milepost
