#include "train/run/stop_signals.h"

#include <fmt/format.h>
#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace milepost::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
volatile std::sig_atomic_t g_received = 0;
volatile int64_t g_received_ms = 0;
struct sigaction g_former[std::size(kSignals)];
sem_t g_news;  // never destroyed: wake() may come late

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Runs in a signal handler: only calls that are safe there.
extern "C" void note_signal(int signal) {
  if (g_received == 0) {
    g_received = signal;
    g_received_ms = now_ms();
    constexpr char kText[] = "[milepost] asked to stop: ending after this step; once more ends at once\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    ::sem_post(&g_news);
    return;
  }
  if (!ends_at_once(signal, now_ms() - g_received_ms)) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

bool ends_at_once(int signal, int64_t after_ms) {
  if (signal == SIGUSR1) return false;
  return after_ms >= (signal == SIGTERM ? 5000 : 1000);
}

StopSignals::StopSignals() {
  g_received = 0;
  ::sem_init(&g_news, /*pshared=*/0, 0);
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &g_former[i]);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &g_former[i], nullptr);
}

int StopSignals::received() { return g_received; }

void StopSignals::wait() {
  while (::sem_wait(&g_news) != 0 && errno == EINTR) {
  }
}

void StopSignals::wake() { ::sem_post(&g_news); }

std::string StopSignals::name(int signal) {
  const char* short_name = ::sigabbrev_np(signal);
  return short_name != nullptr ? fmt::format("SIG{}", short_name) : fmt::format("signal {}", signal);
}

}  // namespace milepost::train
