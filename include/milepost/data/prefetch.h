// Prefetcher: a thread that keeps a few batches ready, so that a step does not wait for its data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "milepost/data/loader.h"

namespace milepost::data {

// Threads: one consumer. The thread is started by the first next(), joined by the destructor, which waits for
// the batch in the making at most. State, ledger and messages are those of the last batch given out: what was
// read ahead does not show.
class Prefetcher {
 public:
  // `depth`: how many batches are kept ready; 0: as many as fit 32 MiB, at least 4 and at most 64, so that
  // small batches, which are used up fast, outlast a moment without the processor.
  explicit Prefetcher(std::unique_ptr<Loader> loader, int depth = 0);
  ~Prefetcher();

  // As Loader::next. An exception of the loader comes out at the batch at which it arose, and at every later
  // call.
  std::optional<Batch> next();

  LoaderState state() const;
  std::string titan_entry(bool* is_exact) const;
  std::string ledger_part() const;
  void restore(const SavedLoader& saved);  // requires that next() was not called yet
  std::vector<Message> take_messages();
  int64_t num_skipped() const;  // bad records

  // Calls of next() that found no batch ready, and how long they waited, the first batch apart.
  struct Waits {
    int64_t count = 0;
    double seconds = 0;
  };
  Waits waits() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace milepost::data
