// A training run, seen from outside: no header of libtorch comes with it.
#pragma once

#include <string>

#include "milepost/base/error.h"
#include "milepost/config/trainer.h"

namespace milepost::train {

// The loss or the norm of the gradients is NaN or infinite.
class NonFiniteError : public Error {
 public:
  explicit NonFiniteError(std::string what_happened, std::string hint)
      : Error(ErrorCode::kOutOfBounds, std::move(what_happened), std::move(hint)) {}
};

// A resumed run does not go on as the one that was saved (debug.prove_resume).
class ResumeError : public Error {
 public:
  explicit ResumeError(const std::string& first_difference)
      : Error(
            ErrorCode::kChecksum,
            "a resumed run differs from one that went on, first at " + first_difference + " after resuming",
            "checkpoint.exclude_from_loading, and operations without a fixed order, are the first suspects") {
  }
};

// How a run ended without an error.
struct RunEnd {
  int signal = 0;  // which asked to stop; 0: none did
};

// Trains as configured, or does what debug.prove_resume or checkpoint.create_seed_checkpoint ask for instead.
// Takes SIGINT, SIGTERM and SIGUSR1 for itself meanwhile, and ends the process where there is no step to wait
// for (stop_point.h). Throws what Trainer throws (trainer.h), ResumeError, out-of-memory and errors of
// libtorch included, the latter as std::runtime_error without their C++ stack.
RunEnd run_training(const config::Trainer& config);

}  // namespace milepost::train
