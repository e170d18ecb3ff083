// Which model a checkpoint is of.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/adapt/hf_config.h"
#include "milepost/engine/model.h"

namespace milepost {

// The text of the config.json at `path` (the file itself, or a folder that holds it); nullopt when there is
// none. Throws StorageError, FormatError kTooLarge.
std::optional<std::string> read_config_text(const StorageLocation& location);

struct ChosenModel {
  flavor::Model model;
  adapt::MapOptions map;
  std::vector<std::string> notes;
};

// The config.json that the choice names, or else the one beside the source. The latter may be unreadable
// where the choice names a flavor: a note then says why it is not used.
std::optional<adapt::HfConfig> find_config(const Checkpoint& source, const ModelChoice& choice,
                                           std::vector<std::string>* notes);

// The first size in which a config.json differs from the model, as "its n_heads is 8, not 16"; empty when
// none that shapes and the order of rows depend on does.
std::string difference_of_sizes(const flavor::Model& theirs, const flavor::Model& ours);

// The one model that fits. Throws ValueError (path) for none, naming the nearest, and for several, naming
// all.
flavor::Model only_fit(const adapt::Fit& fit, std::string_view path);

// Throws ValueError when no model fits, or more than one. See ModelChoice.
ChosenModel choose_model(const Checkpoint& source, std::span<const int64_t> tensors, adapt::Naming naming,
                         const ModelChoice& choice, const std::optional<adapt::HfConfig>& config);

}  // namespace milepost
