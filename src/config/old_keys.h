// Names that TorchTitan's TOML files had before 0.3.0.
#pragma once

#include "config/value_types.h"

namespace milepost::config {

// Moves fields of a document from their old names to today's, where a field still means something. An old and
// a new name for one field in one document: FormatError. Names that mean nothing any more stay, so that the
// reader refuses them; those that never changed a result (`job.description`) are dropped.
void translate_old_keys(Json* document);

// Old and new paths, for the documentation.
struct OldKey {
  std::string_view old_path, new_path;  // new_path empty: dropped
};
std::span<const OldKey> old_keys();

}  // namespace milepost::config
