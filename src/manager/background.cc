#include "milepost/manager/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace milepost::manager {

Background::~Background() {
  if (thread_.joinable()) thread_.join();
}

void Background::start(std::function<void()> work) {
  is_running_ = true;
  try {
    thread_ = std::thread([this, work = std::move(work)] {
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
      is_running_ = false;
    });
  } catch (...) {
    is_running_ = false;
    throw;
  }
}

void Background::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// On Linux a priority is a thread's own. Five steps: a third of the share of a thread that computes.
void lower_priority() {
  const auto thread = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, thread, ::getpriority(PRIO_PROCESS, thread) + 5);
}

}  // namespace milepost::manager
