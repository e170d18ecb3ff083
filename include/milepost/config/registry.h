// The registries: the named configurations that a run starts from, TorchTitan 0.3.0's of llama3 and
// deepseek_v3 with one of ours (deepseek_v3_236b). Explicit tables; everything here is pure, any thread may
// call it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/config/trainer.h"

namespace milepost::config {

// A run cannot start, for a reason that TorchTitan reports as a Python exception of the class `kind`
// ("ValueError", "ImportError", "Exception"): what() is its text, the exit status is 1.
class LaunchError : public ValueError {
 public:
  LaunchError(std::string_view kind, std::string text) : ValueError(std::move(text)), kind_(kind) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

struct Entry {
  std::string_view module;   // "deepseek_v3"
  std::string_view name;     // "deepseek_v3_debugmodel"
  std::string_view summary;  // what it is, in a line
  Trainer (*make)();
};

// All entries, by module, from small to large.
std::span<const Entry> entries();

// Entries of other modules that TorchTitan or torchtitan-npu has and this version does not.
struct PlannedEntry {
  std::string_view module;
  std::string_view name;
};
std::span<const PlannedEntry> planned_entries();

// The entry of a module and a name. The module is a short name, `torchtitan.models.X` or
// `torchtitan_npu.models.X`, each also with `.config_registry`. Throws LaunchError for an unknown module
// (ImportError), an unknown name (ValueError, with those there are) and a planned one.
const Entry& find_entry(std::string_view module, std::string_view name);

// find_entry and its configuration.
Trainer make(std::string_view module, std::string_view name);

// What a configuration asks for that this version cannot build, each in a line that says what it needs; empty
// when it can. Asked before a run, so that such an entry can be shown, checked and saved, but not trained.
std::vector<std::string> missing_for_build(const Trainer& trainer);

// Whether every target of override.imports is one of TorchTitan's fused kernels, which Milepost accepts by
// name: they change neither results nor parameters. Throws LaunchError for any other (ImportError), for one
// that is not module.function and for arguments (ValueError).
void check_override_targets(const OverrideImports& imports);

}  // namespace milepost::config
