// A fault on purpose: what the other ranks make of it is seen without waiting for an accident.
//
// MILEPOST_FAULT=RANK:STEP:PHASE:WHAT, such as 1:5:backward:kill. PHASE: data, forward, backward, optimizer,
// checkpoint, validation or log. WHAT: kill (SIGKILL), stop (SIGSTOP) or throw (an exception).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace milepost::train {

class PlannedFault {
 public:
  // Of this rank, if the environment asks for one. Throws ValueError for what is not of the form above.
  static std::optional<PlannedFault> from_environment(int64_t rank);

  // Happens where `phase` of `step` begins.
  void begin(int64_t step, std::string_view phase) const;

 private:
  int64_t step_ = 0;
  std::string phase_;
  int signal_ = 0;  // 0: throws
};

}  // namespace milepost::train
