// The proof that a resumed run goes on as if it had not stopped (debug.prove_resume N), with this job's
// model, data, ranks and way of saving:
//   1. as a new run: kStepsBeforeProof steps, a save, N steps
//   2. everything built anew, the checkpoint loaded, the N steps once more
//   3. right after loading, after each step and at the end: is every figure and every tensor the same?
// The steps themselves are Trainer::prove_resume().
#pragma once

#include <string>

#include "milepost/base/error.h"
#include "milepost/config/trainer.h"
#include "train/run/metrics_writer.h"

namespace milepost::train {

// So that moments, averages and the data are under way.
inline constexpr int64_t kStepsBeforeProof = 2;

// The configuration of a proof: what it writes lies in a folder of its own below the dump folder. Throws
// ValueError where nothing could be saved.
config::Trainer config_of_proof(config::Trainer config);

// The first figure in which two runs of a step differ; empty where all bits are the same.
std::string figures_difference(const StepRecord& first, const StepRecord& again);

}  // namespace milepost::train
