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
#include <system_error>
#include <thread>
#include <utility>

namespace milepost::train {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kReason = "failure/reason";
constexpr const char* kReasons = "failure/reasons";
constexpr const char* kHeard = "failure/heard";
constexpr const char* kStopWishes = "stop/wishes";
constexpr const char* kStopSignal = "stop/signal";
constexpr const char* kStopStep = "stop/step";
constexpr const char* kStopHeard = "stop/heard";
constexpr const char* kNews =
    "news";  // a reason or a wish is there: the one key that is looked for all along
constexpr milliseconds kPoll(50), kWatch(500), kOwnEnd(1000);
constexpr milliseconds kWordOfOthers(2000), kOthersRead(3000), kStoreAnswers(7000), kLastTry(3000);
constexpr milliseconds kStepsOfAll(3500), kAgreement(5000);  // rank 0 tells the others in the difference

std::string host_key(int64_t rank) { return fmt::format("host/{}", rank); }
std::string stop_key(int64_t rank) { return fmt::format("stop/of/{}", rank); }
std::string ended_key(int64_t rank) { return fmt::format("failure/ended/{}", rank); }

// What `work` returns, or nothing when it takes too long; its thread is left to itself then, and the process
// about to end. Where the system has no thread, this one waits as long as it takes.
template <typename Work>
auto within(milliseconds limit, Work work) -> std::optional<decltype(work())> {
  const auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
  auto result = task->get_future();
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    (*task)();
  }
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
  OnStopWish on_stop_wish;

  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;     // GUARDED_BY(mutex): the job ended or fails; nothing is watched
  bool is_watching = true;  // GUARDED_BY(mutex)
  std::optional<Clock::time_point> asked_since;  // GUARDED_BY(mutex): the watch waits for the store's answer

  std::string name_of(int64_t other) {
    const bool is_known = store->has(host_key(other));
    return fmt::format("rank {} on {}", other,
                       is_known ? store->get(host_key(other), kWordOfOthers) : "an unknown host");
  }

  // Of a failure to ask the store: what a rank without an answer knows.
  std::string no_answer(const std::exception& error) const {
    if (dynamic_cast<const CommunicationError*>(&error) != nullptr) return store_is_silent();
    return fmt::format("It could not be found out: {}", error.what());
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
    store->set(kNews, "");
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
    const std::vector<int64_t> absent = silent(ranks);
    if (absent.empty()) return "No rank gives another reason: the network between them may have failed";
    leave_reason(are_silent(absent), absent.size());
    return store->get(kReason, kWordOfOthers);
  }

  std::string are_silent(const std::vector<int64_t>& absent) {
    std::vector<std::string> names;
    for (const int64_t other : absent) names.push_back(name_of(other));
    names[0][0] = 'R';
    return fmt::format("{} {} not answer: killed, or hanging", fmt::join(names, ", "),
                       names.size() == 1 ? "does" : "do");
  }

  // Nothing after `limit`.
  std::optional<int64_t> number_at(const std::string& key, Clock::time_point limit) {
    while (!store->has(key)) {
      if (Clock::now() >= limit) return std::nullopt;
      std::this_thread::sleep_for(kPoll);
    }
    return std::stoll(store->get(key, kWordOfOthers));
  }

  // The last step of all ranks, or nothing where some are absent, which is then this rank's failure.
  std::optional<int64_t> last_of_all(int64_t own, Clock::time_point limit, std::string* fault) {
    int64_t last = own;
    std::vector<int64_t> absent;
    for (int64_t other = 0; other < num_ranks; ++other) {
      if (other == rank) continue;
      const std::optional<int64_t> step = number_at(stop_key(other), limit);
      step ? void(last = std::max(last, *step)) : absent.push_back(other);
    }
    if (absent.empty()) return last;
    *fault = are_silent(absent);
    set_over();
    leave_reason(*fault, absent.size());
    have_read();
    return std::nullopt;
  }

  std::optional<Stop> agree_on_stop(const Stop& own, std::string* fault) {
    const auto start = Clock::now();
    if (own.signal != 0 && store->add(kStopWishes, 1) == 1) {
      store->set(kStopSignal, std::to_string(own.signal));
      store->set(kNews, "");
    }
    store->set(stop_key(rank), std::to_string(own.step));
    if (rank == 0) {
      const std::optional<int64_t> last = last_of_all(own.step, start + kStepsOfAll, fault);
      if (!last) return std::nullopt;
      store->set(kStopStep, std::to_string(*last));
    }
    const std::optional<int64_t> step = number_at(kStopStep, start + kAgreement);
    const std::optional<int64_t> signal = number_at(kStopSignal, start + kAgreement);
    if (step && signal) {
      have_read(kStopHeard);
      return Stop{static_cast<int>(*signal), *step};
    }
    set_over();
    *fault = store->has(kReason) ? store->get(kReason, kWordOfOthers) : are_silent({0});
    have_read();
    return std::nullopt;
  }

  // Counts those that know; who serves the store waits for the others, since it may end next.
  void have_read(const char* counter = kHeard) {
    store->add(counter, 1);
    if (!store->is_rank_0s() || rank != 0) return;
    for (const auto limit = Clock::now() + kOthersRead; Clock::now() < limit;) {
      if (store->add(counter, 0) >= num_ranks) return;
      std::this_thread::sleep_for(kPoll);
    }
  }

  // How long the store may take to answer: less by what it has left the watch waiting for already.
  milliseconds patience() {
    const std::scoped_lock lock(mutex);
    if (!asked_since) return kStoreAnswers;
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - *asked_since);
    return std::max(kStoreAnswers - waited, kLastTry);
  }
  bool has_news() {
    set_asked_since(Clock::now());
    const bool has = store->has(kNews);
    set_asked_since(std::nullopt);
    return has;
  }
  void set_asked_since(std::optional<Clock::time_point> time) {
    const std::scoped_lock lock(mutex);
    asked_since = time;
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
    while (!is_over_after(kWatch)) {
      try {
        if (look()) return;
      } catch (const std::exception&) {
        // The store may answer again; where it does not, operations with rank 0 fail.
        set_asked_since(std::nullopt);
      }
    }
  }
  // True: there is nothing more to look for.
  bool look() {
    if (!has_news()) return false;
    if (on_stop_wish != nullptr && store->has(kStopSignal)) std::exchange(on_stop_wish, nullptr)();
    if (!store->has(kReason)) return false;
    const std::string reason = store->get(kReason, kWordOfOthers);
    if (is_over_after(kOwnEnd)) return true;
    have_read();
    // Whoever ends the watch waits until `end` is done, which may use what is gone afterwards.
    const std::scoped_lock lock(mutex);
    if (!is_over) end(reason);
    return true;
  }
};

FailureBoard::FailureBoard(std::shared_ptr<JobStore> store, int64_t rank, int64_t num_ranks, End end,
                           OnStopWish on_stop_wish)
    : member_(std::make_shared<Member>()) {
  store->set(host_key(rank), host_name());
  member_->store_host = store->get(host_key(0), std::chrono::minutes(1));
  member_->store = std::move(store);
  member_->rank = rank;
  member_->num_ranks = num_ranks;
  member_->end = std::move(end);
  member_->on_stop_wish = std::move(on_stop_wish);
  std::thread([member = member_] { member->watch(); }).detach();  // may hang with the store
}

FailureBoard::~FailureBoard() {
  member_->set_over();
  std::unique_lock lock(member_->mutex);
  member_->changed.wait_for(lock, kOwnEnd, [&] { return !member_->is_watching; });
}

void FailureBoard::fail(const std::string& text) {
  member_->set_over();
  within(member_->patience(), [member = member_, text] {
    try {
      member->leave_reason(text, 0);
      member->have_read();
    } catch (const std::exception&) {
      return false;  // the others will miss this rank
    }
    return true;
  });
}

std::string FailureBoard::fail_after_others(const std::vector<int64_t>& ranks) {
  member_->set_over();
  const auto reason = within(member_->patience(), [member = member_, ranks] {
    try {
      const std::string found = member->find_reason(ranks);
      member->have_read();
      return found;
    } catch (const std::exception& error) {
      return member->no_answer(error);
    }
  });
  return reason ? *reason : member_->store_is_silent();
}

std::optional<FailureBoard::Stop> FailureBoard::agree_on_stop(const Stop& own, std::string* fault) {
  struct Answer {
    std::optional<Stop> stop;
    std::string fault;
  };
  const auto answer = within(member_->patience(), [member = member_, own] {
    Answer given;
    try {
      given.stop = member->agree_on_stop(own, &given.fault);
    } catch (const std::exception& error) {
      given.fault = member->no_answer(error);
    }
    return given;
  });
  *fault = answer ? answer->fault : member_->store_is_silent();
  return answer ? answer->stop : std::nullopt;
}

}  // namespace milepost::train
