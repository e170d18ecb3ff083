#include "milepost/manager/entries.h"

#include <fmt/format.h>

#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/engine/checkpoint.h"

namespace milepost::manager {
namespace {

using pickle::Kind;
using pickle::Value;

[[noreturn]] void refuse(std::string_view key, std::string_view wanted) {
  FormatError error(ErrorCode::kBadFormat, fmt::format("its value is not {}", wanted));
  error.set_key(key);
  throw error;
}

double read_number(std::string_view key, const Value& value) {
  if (value.kind() == Kind::kFloat) return value.as_double();
  if (value.kind() == Kind::kInt) return static_cast<double>(value.as_int());
  refuse(key, "a number");
}

bool read_bool(std::string_view key, const Value& value) {
  if (value.kind() == Kind::kBool) return value.as_bool();
  if (value.kind() == Kind::kNone) return false;  // torch's "not decided"
  refuse(key, "True or False");
}

}  // namespace

std::string data_rank_key(int64_t dp_rank) { return fmt::format("dataloader.dp_rank_{}", dp_rank); }
std::string rng_key(int64_t rank) { return fmt::format("milepost.rng.rank_{}", rank); }

uint64_t seed_of_rank(std::string_view rng_of_rank_0, int64_t rank) {
  Sha256 hash;
  hash.update(as_bytes(fmt::format("rank {} of ", rank)));
  hash.update(as_bytes(rng_of_rank_0));
  const Sha256Digest digest = hash.finish();
  uint64_t seed = 0;
  for (size_t i = 0; i < sizeof seed; ++i) seed = seed << 8 | static_cast<uint8_t>(digest[i]);
  return seed;
}

std::string optimizer_state_key(std::string_view parameter, std::string_view name) {
  return fmt::format("optimizer.state.{}.{}", parameter, name);
}
std::string param_group_key(std::string_view parameter, std::string_view option) {
  return fmt::format("optimizer.param_groups.{}.{}", parameter, option);
}

std::array<const Value*, kAdamOptions.size()> adam_values(pickle::Builder& values, const AdamGroup& group) {
  const Value* const betas[] = {values.floating(group.beta1), values.floating(group.beta2)};
  const Value* const no = values.boolean(false);
  return {values.boolean(group.fused),
          values.boolean(group.foreach),
          values.floating(group.lr),
          values.tuple(betas),
          values.floating(group.eps),
          values.floating(group.weight_decay),
          no,
          no,
          no,
          no,
          values.boolean(group.decoupled_weight_decay),
          values.floating(group.initial_lr)};
}

void read_adam_option(std::string_view parameter, std::string_view option, const Value& value,
                      AdamGroup* group) {
  const std::string key = param_group_key(parameter, option);
  const auto set_number = [&](double& field) { field = read_number(key, value); };
  const auto set_bool = [&](bool& field) { field = read_bool(key, value); };
  if (option == "fused") return set_bool(group->fused);
  if (option == "foreach") return set_bool(group->foreach);
  if (option == "lr") return set_number(group->lr);
  if (option == "eps") return set_number(group->eps);
  if (option == "weight_decay") return set_number(group->weight_decay);
  if (option == "decoupled_weight_decay") return set_bool(group->decoupled_weight_decay);
  if (option == "initial_lr") return set_number(group->initial_lr);
  if (option == "betas") {
    const bool is_pair = value.kind() == Kind::kTuple || value.kind() == Kind::kList;
    if (!is_pair || value.size() != 2) refuse(key, "a pair of numbers");
    group->beta1 = read_number(key, value.item(0));
    group->beta2 = read_number(key, value.item(1));
    return;
  }
  // amsgrad and maximize would be another optimizer; the other two change nothing here.
  const bool changes_result = option == "amsgrad" || option == "maximize";
  if (read_bool(key, value) && changes_result) refuse(key, "False, as this optimizer needs it");
}

int64_t read_count(std::string_view key, const Value& value) {
  if (value.kind() != Kind::kInt || value.as_int() < 0) refuse(key, "a count");
  return value.as_int();
}

std::string read_text(std::string_view key, const Value& value) {
  if (value.kind() != Kind::kBytes && value.kind() != Kind::kString) refuse(key, "bytes or a text");
  return std::string(value.text());
}

KeyPath entry_path(std::string_view name) {
  if (is_model_key(name)) return {std::string(name)};
  const size_t dot = name.find('.');
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

}  // namespace milepost::manager
