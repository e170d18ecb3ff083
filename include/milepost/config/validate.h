// What may stand together in a configuration: TorchTitan 0.3.0's conditions in its order and words, and those
// of Milepost's own fields. Pure; any thread may call it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "milepost/config/trainer.h"

namespace milepost::config {

// What the machine can do, where a condition depends on it. Milepost captures no CUDA graphs, so the two
// conditions on pipeline and expert parallelism with them do not apply unless asked for.
struct Machine {
  bool captures_cuda_graphs = false;
  bool has_symmetric_memory = false;  // NVIDIA GPUs of compute capability 9.0 or later
};

// Things that are allowed and worth a word, for the log.
using Warnings = std::vector<std::string>;

// One top-level section, by its name ("checkpoint"), without the conditions that look at several. Throws
// ValueError with the condition's text and the section as its key. A section without conditions passes.
void validate_section(Trainer& trainer, std::string_view section, const Machine& machine, Warnings* warnings);

// The conditions that look at several sections; the error's key is "Config".
void validate_together(const Trainer& trainer, const Machine& machine);

// All of it, in TorchTitan's order: sections in the order of their declaration, then together. Spaces around
// checkpoint.initial_load_path are removed. Throws at the first condition that does not hold.
Warnings validate(Trainer& trainer, const Machine& machine);

// Conditions that TorchTitan meets only when it builds the trainer, so that they end a run with status 1: the
// model's positions must reach training.seq_len. Throws ValueError.
void validate_build(const Trainer& trainer);

}  // namespace milepost::config
