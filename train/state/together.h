// What one rank did, told to all of them: an error anywhere is an error everywhere, so that none goes on.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "train/parallel/process_groups.h"

namespace milepost::train {

// Threads: the one that issues the collectives of its group; all ranks make the same calls in the same order.
class Together {
 public:
  // Null: one process. `group`: one of all ranks.
  explicit Together(ProcessGroups* groups, const char* group = "world")
      : group_(groups == nullptr ? nullptr : &groups->group(group)) {}

  bool is_first() const { return group_ == nullptr || group_->index() == 0; }
  int64_t size() const { return group_ == nullptr ? 1 : group_->size(); }
  // Results of `work` of all ranks, in order. `work` itself must not wait for other ranks, unless it does so
  // on all of them whatever fails. Throws what this rank's threw, else a CommunicationError with the first
  // one's text; of a collective that has failed in `work`, that.
  std::vector<std::string> gather(const std::function<std::string()>& work) const;
  // The same without results.
  void all(const std::function<void()>& work) const;
  // `work` on the first rank alone; its result, everywhere.
  std::string first(const std::function<std::string()>& work) const;

  // Whether `failure` is what a call above threw when every rank had been told: then all have thrown in that
  // call, and may go on together. Whatever else is thrown, this rank may be alone with. True with one
  // process.
  bool is_known_to_all(const std::exception_ptr& failure) const {
    return group_ == nullptr || (failure != nullptr && failure == told_);
  }

 private:
  [[noreturn]] void throw_told(std::exception_ptr failure) const;

  Group* group_;
  mutable std::exception_ptr told_;  // of the last call that failed on all ranks
};

}  // namespace milepost::train
