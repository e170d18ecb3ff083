// Background: one piece of work at a time beside the thread that trains.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace milepost::manager {

// Threads: one calls; the work runs on a thread of its own. The destructor waits for the work and drops its
// error.
class Background {
 public:
  Background() = default;
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Requires that nothing is under way: wait() has returned or thrown since the last start. Throws
  // std::system_error where the system has no thread.
  void start(std::function<void()> work);
  // Until the work has ended; rethrows its error, once.
  void wait();
  bool is_running() const { return is_running_; }

 private:
  std::thread thread_;
  std::exception_ptr error_;  // of the ended work
  std::atomic<bool> is_running_{false};
};

// The calling thread, and those that it starts, give way to threads of usual priority. Where the system
// refuses, nothing changes.
void lower_priority();

}  // namespace milepost::manager
