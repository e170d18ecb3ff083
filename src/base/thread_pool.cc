#include "milepost/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace milepost {

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::vector<std::thread> threads;
  // All below is guarded by mutex.
  const std::function<void(int64_t, int)>* task = nullptr;
  int64_t next = 0, count = 0;
  int running = 0;
  int64_t failed_index = -1;
  std::exception_ptr failure;
  bool stopping = false;

  // Takes tasks until none is left. Called with the lock held.
  void work(std::unique_lock<std::mutex>& lock, int worker) {
    while (next < count) {
      const int64_t index = next++;
      const auto* current = task;
      ++running;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        (*current)(index, worker);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      --running;
      if (thrown && (failed_index < 0 || index < failed_index)) {
        failed_index = index;
        failure = thrown;
      }
      if (thrown) next = count;
    }
    if (running == 0) idle.notify_all();
  }

  void worker_loop(int worker) {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || next < count; });
      if (stopping) return;
      work(lock, worker);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  for (int worker = 1; worker < num_threads; ++worker) {
    try {
      state_->threads.emplace_back([state = state_.get(), worker] { state->worker_loop(worker); });
    } catch (const std::system_error&) {
      break;  // at the system's limit of threads: those that did start (at worst the caller alone) do the
              // work
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run(int64_t count, const std::function<void(int64_t, int)>& task) {
  if (count <= 0) return;
  std::unique_lock lock(state_->mutex);
  state_->task = &task;
  state_->next = 0;
  state_->count = count;
  state_->failed_index = -1;
  state_->failure = nullptr;
  if (count > 1) state_->wake.notify_all();
  state_->work(lock, 0);
  state_->idle.wait(lock, [&] { return state_->running == 0; });
  state_->count = state_->next = 0;
  if (std::exception_ptr failure = std::exchange(state_->failure, nullptr)) std::rethrow_exception(failure);
}

int default_num_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 2;
  return std::clamp(CPU_COUNT(&set), 1, 16);
}

}  // namespace milepost
