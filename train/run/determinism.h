// Random numbers and repeatable results (spec training, section 13).
#pragma once

#include <cstdint>

#include "milepost/config/sections.h"
#include "train/parallel/collectives.h"

namespace milepost::train {

// Seeds libtorch's generators with debug.seed, or with a number of the system's where there is none, and
// turns on deterministic kernels where debug asks for them. Returns the seed.
uint64_t set_determinism(const config::Debug& debug, Group* ranks = nullptr);

}  // namespace milepost::train
