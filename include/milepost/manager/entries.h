// Entries: the names and values of a full checkpoint beside the model (spec checkpoint-manager, section 5,
// and choices), as TorchTitan 0.3.0 with torch 2.13 writes them.
//
//   train_state.step, train_state.ntokens_seen        numbers
//   optimizer.state.{fqn}.step|exp_avg|exp_avg_sq     tensors
//   ema_optimizer.state.{fqn}.ema_params              tensors (engine/ema.h), where an average is kept
//   optimizer.param_groups.{fqn}.{option}             a value for each option of each parameter
//   dataloader.dp_rank_{r}, dataloader.world_size     bytes (a pickled dictionary), a number
//   lr_scheduler.last_epoch                           a number
//   milepost.rng.rank_{r}                             bytes: the generator's state
//   milepost.data_ledger, milepost.run                texts (JSON)
//
// TorchTitan does not ask for the last three, so that they do not disturb it. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "milepost/catalog/catalog.h"
#include "milepost/format/pickle.h"

namespace milepost::manager {

inline constexpr std::string_view kStepKey = "train_state.step";
inline constexpr std::string_view kTokensKey = "train_state.ntokens_seen";
inline constexpr std::string_view kEpochKey = "lr_scheduler.last_epoch";
inline constexpr std::string_view kDataWorldKey = "dataloader.world_size";
inline constexpr std::string_view kLedgerKey = "milepost.data_ledger";
inline constexpr std::string_view kRunKey = "milepost.run";
std::string data_rank_key(int64_t dp_rank);  // "dataloader.dp_rank_0"
std::string rng_key(int64_t rank);           // "milepost.rng.rank_0"
// What a rank of a job seeds its generator with whose checkpoint is of fewer ranks: another for each rank and
// each state of rank 0's. Never changes, so that a resume can be repeated.
uint64_t seed_of_rank(std::string_view rng_of_rank_0, int64_t rank);

// `name`: "step", "exp_avg" or "exp_avg_sq".
std::string optimizer_state_key(std::string_view parameter, std::string_view name);
std::string param_group_key(std::string_view parameter, std::string_view option);

// The options of Adam and AdamW in torch's order.
inline constexpr std::array<std::string_view, 12> kAdamOptions = {"fused",
                                                                  "foreach",
                                                                  "lr",
                                                                  "betas",
                                                                  "eps",
                                                                  "weight_decay",
                                                                  "amsgrad",
                                                                  "maximize",
                                                                  "capturable",
                                                                  "differentiable",
                                                                  "decoupled_weight_decay",
                                                                  "initial_lr"};

struct AdamGroup {
  bool fused = true, foreach = false;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool decoupled_weight_decay = true;
  double initial_lr = 0;
};
// One value for each of kAdamOptions; they belong to `values`.
std::array<const pickle::Value*, kAdamOptions.size()> adam_values(pickle::Builder& values,
                                                                  const AdamGroup& group);

// Sets of `group` what option says. Throws FormatError (key): the value is of another type than torch's.
void read_adam_option(std::string_view parameter, std::string_view option, const pickle::Value& value,
                      AdamGroup* group);

// A count (of `key`, for the error). Throws FormatError (key) for another type or a negative number.
int64_t read_count(std::string_view key, const pickle::Value& value);
// The bytes or the text. Throws FormatError (key) for another type.
std::string read_text(std::string_view key, const pickle::Value& value);

// Where a nested state dict holds the entry: {"optimizer", "state.x.step"}; {name} for the model's.
KeyPath entry_path(std::string_view name);

}  // namespace milepost::manager
