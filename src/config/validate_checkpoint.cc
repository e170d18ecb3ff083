#include "config/validate_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/base/error.h"

namespace milepost::config {
namespace {

std::string trimmed(const std::string& text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_remote(std::string_view path) { return path.find("://") != path.npos; }

void require(bool holds, std::string text) {
  if (!holds) throw ValueError(std::move(text));
}

void validate_initial_load(const Checkpoint& c) {
  const std::string path = c.initial_load_path.value_or("");
  require(
      !c.initial_load_path || path.starts_with('/') || is_remote(path),
      fmt::format("initial_load_path must be an absolute path or a remote URI (e.g. gs://...): {}", path));
  require(!c.initial_load_in_hf || c.initial_load_model_only,
          "initial_load_in_hf requires initial_load_model_only.");
  require(!c.initial_load_in_hf_quantized || (c.initial_load_in_hf && !path.empty()),
          "initial_load_in_hf_quantized requires initial_load_in_hf and initial_load_path.");
}

}  // namespace

void validate_checkpoint(Checkpoint& c, Warnings* warnings) {
  require(!trimmed(c.folder).empty(), "The 'folder' field cannot be empty.");
  require(c.interval >= 1, "Checkpoint interval needs to be at least 1 step.");
  require(c.keep_latest_k >= 0, "keep_latest_k cannot be negative.");
  require(
      c.keep_latest_k != 1,
      "We need to maintain at least 2 checkpoint replicas, as the last one may be in the process of being "
      "saved.");
  require(std::count(c.exclude_from_loading.begin(), c.exclude_from_loading.end(), "model") == 0,
          "model key shouldn't be in exclude_from_loading.");
  if (c.initial_load_path) c.initial_load_path = trimmed(*c.initial_load_path);
  validate_initial_load(c);
  require(!c.last_save_in_hf || c.last_save_model_only,
          "last_save_in_hf requires last_save_model_only=True.");
  require(!c.last_save_in_hf || !is_remote(c.folder),
          fmt::format("last_save_in_hf is not supported with a remote checkpoint.folder: {}", c.folder));
  const std::string path = c.initial_load_path.value_or("");
  require(!c.initial_load_in_hf || !is_remote(path),
          fmt::format("initial_load_in_hf is not supported with a remote initial_load_path: {}", path));
  // Ours: TorchTitan takes a step below -1 for one that it then does not find.
  require(c.load_step >= -1,
          fmt::format("checkpoint.load_step must be a step or -1, the newest one, got {}", c.load_step));
  require(c.keep_every >= 0,
          fmt::format("checkpoint.keep_every must be a number of steps or 0, got {}", c.keep_every));
  const bool verifies = c.extensions.verify_hash_manifest;
  require(verifies || !c.extensions.require_manifest,
          "checkpoint.extensions.require_manifest requires checkpoint.extensions.verify_hash_manifest.");
  require(verifies || !c.fallback_to_older,
          "checkpoint.fallback_to_older requires checkpoint.extensions.verify_hash_manifest.");
  if (c.load_only && c.enable_first_step_checkpoint) {
    warnings->push_back("checkpoint.load_only is True; enable_first_step_checkpoint will be ignored.");
  }
  if (c.initial_load_model_only && path.empty()) {
    warnings->push_back("initial_load_model_only=True has no effect without an initial_load_path.");
  }
}

void validate_ema_weights(const EmaWeights& ema) {
  // 1 would never change the average; the earlier npu version lets it pass, later TorchTitan does not.
  require(!ema.decay || (*ema.decay >= 0 && *ema.decay < 1), "ema_weights.decay must be in [0, 1) when set");
  require(ema.decay || ema.half_life_fraction > 0,
          "ema_weights.half_life_fraction must be greater than 0 when decay is not set");
  require(ema.update_every_n_steps >= 1, "ema_weights.update_every_n_steps must be at least 1");
}

}  // namespace milepost::config
