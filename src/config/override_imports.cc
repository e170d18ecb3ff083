#include "config/override_imports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/python_text.h"
#include "milepost/base/error.h"
#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

constexpr std::string_view kFusedTargets[] = {
    "torchtitan.overrides.fused_mla.fused_mla",
    "torchtitan.overrides.fused_swiglu.fused_swiglu",
    "torchtitan.overrides.fused_swiglu.fused_grouped_experts",
};

}  // namespace

OverrideImports parse_override_imports(std::span<const std::string> words) {
  OverrideImports imports;
  for (const std::string& word : words) {
    // A target has no '=', so the first one ends it.
    const size_t equals = word.find('=');
    if (equals != word.npos) {
      const std::string target = word.substr(0, equals), text = word.substr(equals + 1);
      const auto kwargs = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!kwargs.is_object()) {
        throw ValueError(fmt::format("override.imports kwargs for {} must be a JSON object, got {}.",
                                     string_repr(target), string_repr(text)));
      }
      imports.push_back({target, kwargs.dump()});
      continue;
    }
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find(',', begin), word.size());
      if (end > begin) imports.push_back({word.substr(begin, end - begin), ""});
      begin = end + 1;
    }
  }
  return imports;
}

std::string override_imports_text(const OverrideImports& imports) {
  std::string text;
  for (const OverrideImport& import : imports) {
    if (!text.empty()) text += ' ';
    text += import.target;
    if (!import.kwargs_json.empty()) text += "=" + import.kwargs_json;
  }
  return text;
}

void check_override_targets(const OverrideImports& imports) {
  for (const OverrideImport& import : imports) {
    const std::string target = string_repr(import.target);
    const size_t dot = import.target.rfind('.');
    if (dot == import.target.npos || dot == 0 || dot + 1 == import.target.size()) {
      throw LaunchError("ValueError", fmt::format("override target {} must be module.function", target));
    }
    if (std::find(std::begin(kFusedTargets), std::end(kFusedTargets), import.target) ==
        std::end(kFusedTargets)) {
      throw LaunchError("ImportError", fmt::format("override target {} is not known; known are {}", target,
                                                   fmt::join(kFusedTargets, ", ")));
    }
    if (!import.kwargs_json.empty() && import.kwargs_json != "{}") {
      throw LaunchError("ValueError", fmt::format("override target {} takes no arguments", target));
    }
  }
}

}  // namespace milepost::config
