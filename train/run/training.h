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

// How a run ended without an error.
struct RunEnd {
  int signal = 0;  // which asked to stop; 0: none did
};

// Trains as configured, or saves the seed checkpoint that checkpoint.create_seed_checkpoint asks for. Takes
// SIGINT, SIGTERM and SIGUSR1 for itself while steps run. Throws what Trainer throws (trainer.h),
// out-of-memory and errors of libtorch included, the latter as std::runtime_error without their C++ stack.
RunEnd run_training(const config::Trainer& config);

}  // namespace milepost::train
