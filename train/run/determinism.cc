#include "train/run/determinism.h"

#include <cstdlib>
#include <random>
#include <string>

#include "train/torch.h"

namespace milepost::train {

uint64_t set_determinism(const config::Debug& debug, Group* ranks) {
  uint64_t seed = 0;
  if (debug.seed) {
    seed = static_cast<uint64_t>(*debug.seed);
  } else {
    std::random_device random;
    seed = uint64_t{random()};
  }
  // Without a seed of its own a job takes the first rank's, so that all ranks draw the same values.
  if (ranks != nullptr) seed = std::stoull(broadcast_string(*ranks, std::to_string(seed), 0));
  at::manual_seed(seed);
  if (debug.deterministic) {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    at::globalContext().setDeterministicAlgorithms(true, debug.deterministic_warn_only);
  }
  if (debug.detect_anomaly) torch::autograd::AnomalyMode::set_enabled(true, /*check_nan=*/true);
  return seed;
}

}  // namespace milepost::train
