// Holds what a run gave against what a fixture expects, group by group: a group is all values of one meaning
// ("steps.loss", "hidden"), and passes when every one of them is within its tolerance.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "train/numerics/fixture.h"
#include "train/numerics/reference_run.h"

namespace milepost::train {

// Differences that rounding explains, as measured between two attention kernels of the reference and then
// multiplied by ten or more.
struct Tolerances {
  double logits, hidden;    // absolute
  double first_loss, loss;  // absolute: of the first step, of later ones
  double grad_norm;         // relative
  double parameter_norm;    // relative
  double gradient;          // of each element, relative to the largest of the tensor
  double parameter;         // of each element after training, absolute
  double margin;            // of a router's smallest gap, absolute
  double noise;             // gaps below this may fall either way
};
// For what computes in float32 throughout; for routed experts in bfloat16; for everything in bfloat16. The
// last allow about five times what two forms of the same maths, which round in other places (a rounding is up
// to 2^-9 of a value), are apart on tiny models: 0.03 in logits, 0.02 in hidden states, 2 % in small
// gradients.
extern const Tolerances kFloat32Tolerances, kBFloat16ExpertsTolerances, kBFloat16Tolerances;
const Tolerances& tolerances_for(const Fixture& fixture, const Expected& expected);

struct GroupResult {
  int64_t num_values = 0, num_off = 0;
  double worst = 0;        // largest difference over its tolerance
  std::string worst_text;  // where that was, and the two values
  bool passed() const { return num_off == 0; }
};

// Everything that `expected` holds: what `recorded` lacks fails.
std::map<std::string, GroupResult> compare(const Fixture& fixture, const Expected& expected,
                                           const Recorded& recorded);

}  // namespace milepost::train
