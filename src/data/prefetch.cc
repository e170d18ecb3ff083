#include "milepost/data/prefetch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace milepost::data {
namespace {

struct Ready {
  std::optional<Batch> batch;
  LoaderState after;
  std::vector<Message> messages;
  int64_t num_skipped = 0;
  std::exception_ptr failure;
};

size_t default_depth(const Loader& loader) {
  constexpr int64_t kReadyBytes = 32 << 20;
  return static_cast<size_t>(std::clamp<int64_t>(kReadyBytes / loader.batch_bytes(), 4, 64));
}

}  // namespace

struct Prefetcher::State {
  std::unique_ptr<Loader> loader;  // the thread's, once that runs, but for its const members
  size_t depth = 1;
  LoaderState current;            // after the last batch given out
  std::vector<Message> messages;  // of batches given out
  int64_t num_skipped = 0;
  Waits waits;
  bool is_first = true;
  std::exception_ptr failure;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Ready> queue;  // guarded by mutex
  bool stop = false;        // guarded by mutex
  std::thread thread;

  Ready make() {
    Ready ready;
    try {
      ready.batch = loader->next();
      ready.after = loader->state();
      ready.messages = loader->take_messages();
      ready.num_skipped = loader->source().num_skipped();
    } catch (...) {
      ready.failure = std::current_exception();
    }
    return ready;
  }

  void work() {
    for (bool is_last = false; !is_last;) {
      Ready ready = make();
      is_last = !ready.batch;
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stop || queue.size() < depth; });
      if (stop) return;
      queue.push_back(std::move(ready));
      changed.notify_all();
    }
  }

  Ready take() {
    std::unique_lock lock(mutex);
    if (queue.empty()) {
      const auto start = std::chrono::steady_clock::now();
      changed.wait(lock, [&] { return !queue.empty(); });
      if (!is_first) {
        ++waits.count;
        waits.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
    }
    is_first = false;
    Ready ready = std::move(queue.front());
    queue.pop_front();
    changed.notify_all();
    return ready;
  }
};

Prefetcher::Prefetcher(std::unique_ptr<Loader> loader, int depth) : state_(std::make_unique<State>()) {
  state_->current = loader->state();
  state_->loader = std::move(loader);
  state_->depth = depth < 1 ? default_depth(*state_->loader) : static_cast<size_t>(depth);
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

std::optional<Batch> Prefetcher::next() {
  State& s = *state_;
  if (s.failure) std::rethrow_exception(s.failure);
  if (s.is_first) {
    s.messages = s.loader->take_messages();
    s.thread = std::thread([&s] { s.work(); });
  } else if (!s.thread.joinable()) {
    return std::nullopt;
  }
  Ready ready = s.take();
  if (!ready.batch) s.thread.join();
  if (ready.failure) {
    s.failure = ready.failure;
    std::rethrow_exception(s.failure);
  }
  s.current = std::move(ready.after);
  s.num_skipped = ready.num_skipped;
  for (Message& message : ready.messages) s.messages.push_back(std::move(message));
  return std::move(ready.batch);
}

LoaderState Prefetcher::state() const { return state_->current; }
std::string Prefetcher::titan_entry(bool* is_exact) const {
  return state_->loader->titan_entry(state_->current, is_exact);
}
std::string Prefetcher::ledger_part() const { return state_->loader->ledger_part(state_->current); }

void Prefetcher::restore(const SavedLoader& saved) {
  state_->loader->restore(saved);
  state_->current = state_->loader->state();
}

std::vector<Message> Prefetcher::take_messages() {
  State& s = *state_;
  if (s.is_first) {
    for (Message& message : s.loader->take_messages()) s.messages.push_back(std::move(message));
  }
  return std::exchange(s.messages, {});
}

int64_t Prefetcher::num_skipped() const { return state_->num_skipped; }

Prefetcher::Waits Prefetcher::waits() const { return state_->waits; }

}  // namespace milepost::data
