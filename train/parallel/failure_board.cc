#include "train/parallel/failure_board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace milepost::train {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kReason = "failure/reason";
constexpr const char* kReasons = "failure/reasons";
constexpr const char* kHeard = "failure/heard";
constexpr milliseconds kPoll(50), kWatch(500), kOwnEnd(1000);
constexpr milliseconds kWordOfOthers(2000), kOthersRead(3000), kStoreAnswers(7000);

std::string host_key(int64_t rank) { return fmt::format("host/{}", rank); }
std::string ended_key(int64_t rank) { return fmt::format("failure/ended/{}", rank); }

// What `work` returns, or nothing when it takes too long; its thread is left to itself then, and the process
// about to end.
template <typename Work>
auto within(milliseconds limit, Work work) -> std::optional<decltype(work())> {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

// Everything that a thread may still use after the board is gone.
struct FailureBoard::Member {
  std::shared_ptr<JobStore> store;
  int64_t rank = 0, num_ranks = 1;
  std::string store_host;
  End end;

  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;     // GUARDED_BY(mutex): the job ended or fails; nothing is watched
  bool is_watching = true;  // GUARDED_BY(mutex)

  std::string name_of(int64_t other) {
    const bool is_known = store->has(host_key(other));
    return fmt::format("rank {} on {}", other,
                       is_known ? store->get(host_key(other), kWordOfOthers) : "an unknown host");
  }

  std::string store_is_silent() const {
    if (!store->is_rank_0s()) return "The launcher's store does not answer: its agent was killed, or hangs";
    return fmt::format("Rank 0 on {} does not answer: it was killed, or hangs (it serves the job's store)",
                       store_host);
  }

  // The first one counts. `num_absent`: ranks that will read nothing.
  void leave_reason(const std::string& reason, size_t num_absent) {
    if (store->add(kReasons, 1) != 1) return;
    store->add(kHeard, static_cast<int64_t>(num_absent));
    store->set(kReason, reason);
  }

  std::vector<int64_t> silent(const std::vector<int64_t>& ranks) {
    std::vector<int64_t> found;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found),
                 [&](int64_t other) { return other != rank && !store->has(ended_key(other)); });
    return found;
  }

  // The reason that some rank left, or this one for all: who says nothing.
  std::string find_reason(const std::vector<int64_t>& ranks) {
    store->set(ended_key(rank), "");
    for (const auto limit = Clock::now() + kWordOfOthers; Clock::now() < limit;) {
      if (store->has(kReason)) return store->get(kReason, kWordOfOthers);
      std::this_thread::sleep_for(kPoll);
    }
    std::vector<std::string> names;
    for (const int64_t other : silent(ranks)) names.push_back(name_of(other));
    if (names.empty()) return "No rank gives another reason: the network between them may have failed";
    names[0][0] = 'R';
    leave_reason(fmt::format("{} {} not answer: killed, or hanging", fmt::join(names, ", "),
                             names.size() == 1 ? "does" : "do"),
                 names.size());
    return store->get(kReason, kWordOfOthers);
  }

  void have_read() {
    store->add(kHeard, 1);
    if (!store->is_rank_0s() || rank != 0) return;
    for (const auto limit = Clock::now() + kOthersRead; Clock::now() < limit;) {
      if (store->add(kHeard, 0) >= num_ranks) return;
      std::this_thread::sleep_for(kPoll);
    }
  }

  // Whether the job is over before `time` has passed.
  bool is_over_after(milliseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [&] { return is_over; });
  }
  void set_over() {
    const std::scoped_lock lock(mutex);
    is_over = true;
    changed.notify_all();
  }

  void watch() {
    watch_until_over();
    const std::scoped_lock lock(mutex);
    is_watching = false;
    changed.notify_all();
  }
  void watch_until_over() {
    try {
      while (!is_over_after(kWatch)) {
        if (!store->has(kReason)) continue;
        const std::string reason = store->get(kReason, kWordOfOthers);
        if (is_over_after(kOwnEnd)) return;
        have_read();
        return end(reason);
      }
    } catch (const CommunicationError&) {
      return;  // without its store the job cannot say more; operations with rank 0 fail
    }
  }
};

FailureBoard::FailureBoard(std::shared_ptr<JobStore> store, int64_t rank, int64_t num_ranks, End end)
    : member_(std::make_shared<Member>()) {
  store->set(host_key(rank), host_name());
  member_->store_host = store->get(host_key(0), std::chrono::minutes(1));
  member_->store = std::move(store);
  member_->rank = rank;
  member_->num_ranks = num_ranks;
  member_->end = std::move(end);
  std::thread([member = member_] { member->watch(); }).detach();  // may hang with the store
}

FailureBoard::~FailureBoard() {
  member_->set_over();
  std::unique_lock lock(member_->mutex);
  member_->changed.wait_for(lock, kOwnEnd, [&] { return !member_->is_watching; });
}

void FailureBoard::fail(const std::string& text) {
  member_->set_over();
  within(kStoreAnswers, [member = member_, text] {
    try {
      member->leave_reason(text, 0);
      member->have_read();
    } catch (const CommunicationError&) {
      return false;
    }
    return true;
  });
}

std::string FailureBoard::fail_after_others(const std::vector<int64_t>& ranks) {
  member_->set_over();
  const auto reason = within(kStoreAnswers, [member = member_, ranks] {
    try {
      const std::string found = member->find_reason(ranks);
      member->have_read();
      return found;
    } catch (const CommunicationError&) {
      return member->store_is_silent();
    }
  });
  return reason ? *reason : member_->store_is_silent();
}

}  // namespace milepost::train
