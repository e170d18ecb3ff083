#include "interrupt.h"

#include <signal.h>

#include <atomic>

namespace milepost::cli {
namespace {

std::atomic<Progress*> watched{nullptr};
std::atomic<int> received{0};
static_assert(std::atomic<Progress*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

extern "C" void ask_to_stop(int signal) {
  received = signal;
  if (Progress* progress = watched) progress->cancel = true;
}

}  // namespace

Interrupt::Interrupt(Progress& progress) {
  watched = &progress;
  struct sigaction action {};
  action.sa_handler = ask_to_stop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Interrupt::~Interrupt() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  watched = nullptr;
}

int Interrupt::signal_received() { return received; }

}  // namespace milepost::cli
