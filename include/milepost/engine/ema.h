// EMA: exponential moving averages of a model's weights in a checkpoint, of either writer.
//
//   ema_optimizer.state.{parameter}.ema_params      Milepost and torchtitan-npu: one average
//   ema.state.{parameter}.ema_params.{copy}         later TorchTitan: several, each with a name
//
// Parameters have the optimizer's names: llama3's fused projection is one of them, its parts are not. Only
// trainable parameters have averages; buffers belong to the model.
//
// Threads: any; nothing but the index is read. Sources: spec checkpoint-manager, section 12.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/engine/model.h"

namespace milepost {

inline constexpr std::string_view kEmaPart = "ema_optimizer";

// One average of all parameters, by what stands before and behind a parameter's name.
struct EmaCopy {
  std::string name;  // "decay_0p999" of TorchTitan's; empty for ours, which needs none
  std::string prefix, suffix;

  std::string key(std::string_view parameter) const { return prefix + std::string(parameter) + suffix; }
};
// The one that Milepost writes.
EmaCopy own_ema();

// TorchTitan's name of the copy with this fixed decay, or else with this half-life fraction: "decay_0p999".
std::string ema_copy_name(std::optional<double> decay, double half_life_fraction);

// Those that the checkpoint holds, ours first, then TorchTitan's in order of names.
std::vector<EmaCopy> ema_copies(const Catalog& catalog);

// The copy that is meant: the one named `name`; without a name ours, else the only one. nullopt when the
// checkpoint has none. Throws ValueError for several without a name, and for a name that none has; the error
// lists what there is.
std::optional<EmaCopy> choose_ema(const Checkpoint& checkpoint, std::string_view name);

// The checkpoint's model with the averages in place of the weights, under native names; buffers are the
// model's. `choice` says which model it is, as for as_native(), whose errors it throws. Throws
// MissingKeyError when a weight has no average, ShapeMismatchError for one of another shape.
std::shared_ptr<const Checkpoint> ema_as_model(const std::shared_ptr<const Checkpoint>& source,
                                               const EmaCopy& copy, const ModelChoice& choice);

}  // namespace milepost
