// The targets of `override.imports`.
#pragma once

#include <span>
#include <string>

#include "milepost/config/values.h"

namespace milepost::config {

// Each word is a comma list of targets, or one `target={json object}`. Throws ValueError when what follows
// '=' is no JSON object. Empty targets are dropped.
OverrideImports parse_override_imports(std::span<const std::string> words);
std::string override_imports_text(const OverrideImports& imports);

}  // namespace milepost::config
